"""Workers and processes that crash show where, and errors of lost tasks what they ran."""

from __future__ import annotations

from programs import run

CRASH = """
    import ctypes, os, signal
    import drover

    def helper(text):
        ctypes.string_at(0)

    def crash(text):
        helper(text)
"""


def test_crash_of_a_worker_shows_the_python_stack() -> None:
    """The error names the call."""
    lines = run(
        CRASH
        + """
    if __name__ == "__main__":
        with drover.Pool(1) as pool:
            try:
                pool.map(crash, [{"file": "a.png"}])
            except drover.PeerLost as error:
                print("ERROR", error)
            print(pool.apply(abs, (-1,)))
    """
    )
    text = "\n".join(lines)
    assert "Fatal Python error: Segmentation fault" in text
    assert "in helper" in text.partition("Segmentation fault")[2]
    assert "crash({'file': 'a.png'})" in text.partition("ERROR ")[2]
    assert "SIGSEGV" in text
    assert lines[-1] == "1"


def test_crash_of_a_process_shows_the_python_stack() -> None:
    """And its exit code is that of the signal."""
    lines = run(
        CRASH
        + """
    if __name__ == "__main__":
        process = drover.Process(target=crash, args=("x",))
        process.start()
        process.join()
        print(process.exitcode == -signal.SIGSEGV)
    """
    )
    assert lines[-1] == "True"
    assert "in helper" in "\n".join(lines)


def test_exhausted_retries_do_not_advise_to_retry() -> None:
    """The error says how often the task was tried."""
    lines = run(
        CRASH
        + """
    def die(number):
        os._exit(number)

    if __name__ == "__main__":
        for retry in (None, 1):
            with drover.Pool(1) as pool:
                try:
                    pool.options(retry=retry).apply(die, (3,)) if retry else pool.apply(die, (3,))
                except drover.Error as error:
                    print("ERROR", str(error).replace(chr(10), " "))
    """
    )
    first, second = (line for line in lines if line.startswith("ERROR"))
    assert "its arguments: die(3)" in first
    assert "use Pool(retry=n)" in first
    assert "die(3)" in second
    assert "it was run 2 times" in second
    assert "retry" not in second
    assert "run it alone with these arguments" in second
