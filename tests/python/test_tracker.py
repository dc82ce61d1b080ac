"""multiprocessing's resource tracker: started on first use, by whichever process uses it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from programs import run

TRACKERS = """
        import pathlib
        import drover

        def trackers():
            found = 0
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    parent = path.with_name("stat").read_text().rpartition(")")[2].split()[1]
                    found += b"resource_tracker" in path.read_bytes() and int(parent) == os.getpid()
                except OSError:
                    pass
            return found
"""


def is_gone(name: str) -> bool:
    """Whether a piece of shared memory is removed, which the tracker does after the program's end."""
    path = Path("/dev/shm", name)  # noqa: S108 (where the memory is)
    for _ in range(3000):
        if not path.exists():
            return True
        time.sleep(0.01)
    return False


def test_tracker_is_not_started_for_programs_that_do_not_use_it() -> None:
    """Neither by pools nor by processes; the first message starts it."""
    lines = run(f"""
        import os
        {TRACKERS}
        if __name__ == "__main__":
            with drover.Pool(1) as pool:
                pool.apply(abs, (1,))
            process = drover.Process(target=abs, args=(1,))
            process.start()
            process.join()
            print(trackers())

            import multiprocessing
            from multiprocessing import resource_tracker
            lock = multiprocessing.get_context("spawn").Lock()
            print(trackers(), resource_tracker._resource_tracker._pid is not None)
    """)
    assert lines == ["0", "1 True"]


@pytest.mark.parametrize("start", ["pool.apply(make)", "pool.apply(nested)"])
def test_memory_of_a_worker_outlives_it_and_is_removed_with_the_program(start: str) -> None:
    """As with processes that multiprocessing spawns: they all share one tracker."""
    lines = run(f"""
        import os
        from multiprocessing import shared_memory
        {TRACKERS}
        def make():
            made = shared_memory.SharedMemory(create=True, size=10)
            made.buf[0] = 7
            return made.name

        def nested():
            with drover.Pool(1) as pool:
                return pool.apply(make)

        if __name__ == "__main__":
            with drover.Pool(1) as pool:
                kept, dropped = [{start} for _ in range(2)]
            memory = shared_memory.SharedMemory(kept)
            print(memory.buf[0], trackers())
            memory.close()
            memory.unlink()
            print(dropped)
    """)
    assert lines[0] == "7 1"
    assert is_gone(lines[1])


def test_memory_that_is_made_last_is_removed() -> None:
    """The tracker may not be started yet when the program ends, and a forked child leaves it to its parent."""
    lines = run("""
        import os
        import drover
        from multiprocessing import resource_tracker, shared_memory

        def make():
            print(shared_memory.SharedMemory(create=True, size=10).name, flush=True)
            os._exit(0)

        if __name__ == "__main__":
            process = drover.Process(target=make)
            process.start()
            process.join()
            if os.fork() == 0:
                make()
            os.wait()
    """)
    assert [is_gone(line) for line in lines[:2]] == [True, True]


def test_forked_child_that_outlives_its_program_has_a_tracker() -> None:
    """Its messages would fill the pipe if nobody read them."""
    lines = run("""
        import os
        import drover
        from multiprocessing import shared_memory

        def use_often():
            for _ in range(1000):
                memory = shared_memory.SharedMemory(create=True, size=10)
                memory.close()
                memory.unlink()
            print(shared_memory.SharedMemory(create=True, size=10).name, flush=True)

        def use_after_the_program():
            process = drover.Process(target=abs, args=(1,))
            process.start()
            process.join()
            reading, writing = os.pipe()
            if os.fork() == 0:
                os.close(writing)
                os.read(reading, 1)
                use_often()
                os._exit(0)

        if __name__ == "__main__":
            reading, writing = os.pipe()
            if os.fork() == 0:
                use_after_the_program()
            else:
                os.close(writing)
                os.read(reading, 1)
    """)
    assert is_gone(lines[0])


def test_child_that_is_forked_while_the_tracker_is_started_can_use_it() -> None:
    """It inherits no lock from the thread that starts it."""
    lines = run("""
        import os
        import threading
        import time
        import drover
        from drover import _tracker
        from multiprocessing import resource_tracker

        started, spawn = threading.Event(), _tracker._spawn

        def spawn_slowly(reading):
            started.set()
            time.sleep(0.5)
            return spawn(reading)

        _tracker._spawn = spawn_slowly
        os.write(_tracker.descriptor(), b"PROBE:0:noop\\n")
        started.wait()
        if os.fork() == 0:
            resource_tracker.ensure_running()
            print("used", flush=True)
            os._exit(0)
        os.wait()
        resource_tracker.ensure_running()
        print("used", resource_tracker._resource_tracker._pid is not None)
    """)
    assert lines == ["used", "used True"]


def test_tracker_that_died_is_started_again() -> None:
    """With multiprocessing's warning."""
    lines = run("""
        import os
        import signal
        import warnings
        import drover
        from multiprocessing import resource_tracker

        tracker = resource_tracker._resource_tracker

        def ensure():
            resource_tracker.ensure_running()
            return True

        def use():
            with drover.Pool(1) as pool:
                pool.apply(ensure)
                ensure()
                return tracker._pid

        if __name__ == "__main__":
            first = use()
            os.kill(first, signal.SIGKILL)
            os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                print(use() not in (first, None), [str(one.message)[:30] for one in caught])
    """)
    assert lines == ["True ['resource_tracker: process died']"]


def test_tracker_is_started_at_once_if_there_are_no_threads() -> None:
    """As by multiprocessing itself."""
    lines = run("""
        import threading
        import drover
        from drover import _tracker
        from multiprocessing import resource_tracker

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        start, threading.Thread.start = threading.Thread.start, refuse
        _tracker.descriptor()
        threading.Thread.start = start
        print(resource_tracker._resource_tracker._pid is not None, drover.Pool(1).apply(abs, (-1,)))
    """)
    assert lines[:1] == ["True 1"]
