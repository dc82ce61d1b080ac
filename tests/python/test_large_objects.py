"""Large objects without arrays, as arguments and results of tasks."""

from __future__ import annotations

from programs import run


def test_large_arguments_and_results_arrive_as_they_were_and_lie_in_shared_memory() -> None:
    """The program keeps no copy of a large argument; it is also that of the next attempt after a death."""
    lines = run("""
        import os
        import pathlib
        import drover

        LONG = b"x" * (3 << 20)
        THINGS = [
            LONG, "\\N{GREEK SMALL LETTER ALPHA}" * (1 << 20), "\\ud800" * (1 << 20),
            [LONG, b"", LONG], {"a": (LONG, 1)},
            [b"y" * 1000] * 2000, [bytes([i % 256]) * 1000 for i in range(3000)], bytearray(LONG), {1: {LONG}},
            list(range(300_000)),
        ]

        def same(thing):
            return thing

        def die(thing):
            os.kill(os.getpid(), 9)

        def die_once(path, thing):
            if not os.path.exists(path):
                open(path, "x").close()
                die(thing)
            return thing

        def peak_mib():
            return int(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024

        if __name__ == "__main__":
            with drover.Pool(2) as pool:
                print([pool.apply(same, (thing,)) == thing for thing in THINGS].count(True))
                print(pool.map(same, THINGS) == THINGS, list(pool.imap_unordered(len, [LONG] * 9)) == [len(LONG)] * 9)
                print(pool.map(same, THINGS, chunksize=1) == THINGS)
                first, second = pool.apply(same, ([LONG, LONG],))
                print(first is second)
                print(pool.options(retry=1).apply(die_once, (f"{__file__}.dead", LONG)) == LONG)
                try:
                    pool.options(retry=0).apply(die, (LONG,))
                except drover.PeerLost as error:
                    print("die(...)" in str(error), len(str(error)) < 2000)
                huge = b"z" * (64 << 20)
                before = peak_mib()
                print(pool.apply(len, (huge,)), peak_mib() - before < 64)
            with drover.Executor(1) as executor:
                print(executor.submit(same, LONG).result() == LONG)
    """)
    told = [line for line in lines if not line.startswith("drover[")]
    assert told == ["10", "True True", "True", "True", "True", "True True", "67108864 True", "True"]
