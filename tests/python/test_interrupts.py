"""Ctrl-C while results are read: the iterator can be used again, or dropped with the tasks not started yet."""

from __future__ import annotations

from programs import run


def test_iterator_dropped_after_ctrl_c_cancels_its_tasks() -> None:
    """Even if the exception is kept, as prompts do. An iterator that is kept continues where it was."""
    lines = run("""
        import os, signal, threading, time
        import drover

        def slow(x):
            time.sleep(0.05)
            return x

        def is_interrupted(take):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                take()
            except KeyboardInterrupt as interrupt:
                return interrupt

        with drover.Pool(2) as pool:
            pool.wait_ready()
            kept = [
                is_interrupted(lambda: list(pool.imap(slow, range(5000)))),
                is_interrupted(lambda: list(pool.imap_unordered(slow, range(5000), 2))),
                is_interrupted(lambda: list(pool.imap(slow, range(5000), progress=lambda *_: None))),
            ]
            print([type(one).__name__ for one in kept])
            print(pool.map(abs, [-1, -2]))  # does not wait behind thousands of tasks
            print(pool.statistics()["pending"])
            for size in (1, 3):
                results, got = pool.imap(slow, range(30), size), []
                interrupt = is_interrupted(lambda: got.extend(results))
                got.extend(results)
                print(type(interrupt).__name__, got == list(range(30)) or len(got))
    """)
    interrupted = "KeyboardInterrupt"
    assert lines[:3] == [f"['{interrupted}', '{interrupted}', '{interrupted}']", "[1, 2]", "0"]
    assert lines[3:] == [f"{interrupted} True"] * 2
