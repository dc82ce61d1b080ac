"""Worker processes that are replaced after some tasks."""

from __future__ import annotations

from programs import run


def test_no_process_runs_more_tasks_than_maxtasksperchild() -> None:
    """Exactly, as with multiprocessing, although tasks are sent ahead; a chunk is one task."""
    lines = run("""
        import collections
        import os
        import drover
        from drover import Executor

        def who(_):
            return os.getpid()

        def show(pids):
            print(sorted(collections.Counter(pids).values()))

        if __name__ == "__main__":
            with drover.Pool(1, maxtasksperchild=1) as pool:
                show(pool.map(who, range(6), chunksize=1))
                show(pool.imap_unordered(who, range(4)))
                show(pool.map(who, range(6), chunksize=3))
                show([result.get() for result in [pool.apply_async(who, (x,)) for x in range(3)]])
            with drover.Pool(1, maxtasksperchild=4) as pool:
                show([pool.apply(who, (x,)) for x in range(10)])
            with Executor(1, max_tasks_per_child=2) as executor:
                show(executor.map(who, range(6)))
    """)
    assert lines == ["[1, 1, 1, 1, 1, 1]", "[1, 1, 1, 1]", "[3, 3]", "[1, 1, 1]", "[2, 4, 4]", "[2, 2, 2]"]
