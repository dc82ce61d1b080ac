"""Progress: by a function, a bar of the program, tqdm, or a line on a terminal; otherwise nothing."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from programs import run


def test_function_and_bar_count_every_item_once() -> None:
    """For maps with and without chunks, iterators and executors; exceptions of tasks count, too."""
    lines = run("""
        import drover

        class Bar:
            def __init__(self):
                self.sum = 0

            def update(self, count):
                self.sum += count

        def square(x):
            return x * x

        def odd(x):
            if x % 2:
                raise KeyError(x)
            return x

        def add(x, y):
            return x + y

        calls = []
        record = lambda done, total: calls.append((done, total))

        def check(results, expected, total=100):
            steps = [done for done, _ in calls]
            totals = {total for _, total in calls}
            print(results == expected, steps == sorted(set(steps)), steps[-1], totals == {total})
            calls.clear()

        squares = [x * x for x in range(100)]
        with drover.Pool(2) as pool, drover.Executor(2) as executor:
            check(pool.map(square, range(100), progress=record), squares)
            check(pool.map(square, iter(range(100)), 1, progress=record), squares)
            check(pool.starmap(add, [(x, 1) for x in range(100)], 7, progress=record), list(range(1, 101)))
            check(list(pool.imap(square, range(100), progress=record)), squares)
            check(sorted(pool.imap_unordered(square, iter(range(100)), 3, progress=record)), squares, None)
            check(list(executor.map(add, range(100), range(1000), progress=record)), [2 * x for x in range(100)])
            bar = Bar()
            results = pool.imap(odd, range(10), progress=bar)
            raised = 0
            while True:
                try:
                    results.next(timeout=60)
                except KeyError:
                    raised += 1
                except StopIteration:
                    break
            print(bar.sum, raised)
            bar = Bar()
            try:
                pool.map(odd, range(10), progress=bar)
            except KeyError:
                print(bar.sum)
            print(pool.map(square, [], progress=bar), bar.sum)
    """)
    assert lines == ["True True 100 True"] * 6 + ["10 5", "10", "[] 10"]


def test_tqdm_is_used_if_installed() -> None:
    """With the function's name or the given title; it is closed at the end, also after an exception."""
    lines = run("""
        import sys, types
        import drover

        class tqdm:
            def __init__(self, total, desc, disable):
                self.shown = [desc, total, disable, 0]

            def update(self, count):
                self.shown[3] += count

            def close(self):
                print(*self.shown)

        sys.modules["tqdm"], sys.modules["tqdm.auto"] = types.ModuleType("tqdm"), types.ModuleType("tqdm.auto")
        sys.modules["tqdm.auto"].tqdm = tqdm

        def square(x):
            return x * x

        with drover.Pool(2) as pool:
            pool.map(square, range(50), progress=True)
            list(pool.imap_unordered(square, iter(range(20)), progress="squares"))
            pool.map(square, range(50))
            try:
                pool.map(square, ["x"] * 5, progress=True)
            except TypeError as error:
                print("TypeError")
    """)
    assert lines == ["square 50 None 50", "squares None None 20", "square 5 None 5", "TypeError"]


LINE = """
import sys
sys.modules["tqdm"] = None  # makes its import fail
import drover

def square(x):
    return x * x

with drover.Pool(2) as pool:
    print(sum(pool.map(square, range(500), 1, progress="squares")))
"""


def test_line_is_drawn_on_a_terminal_only(tmp_path: Path) -> None:
    """Nothing is written to a pipe."""
    program = tmp_path / "program.py"
    program.write_text(LINE)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=90, check=True)
    assert (done.stdout, done.stderr) == ("41541750\n", "")
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=theirs, text=True) as child:
        os.close(theirs)
        shown = b""
        end = time.monotonic() + 90
        while time.monotonic() < end and (child.poll() is None or select.select([ours], [], [], 0)[0]):
            if select.select([ours], [], [], 0.05)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # the last writer is gone
                    break
        assert child.stdout is not None
        assert child.stdout.read() == "41541750\n"
    os.close(ours)
    last = shown.decode().rstrip().rpartition("\r")[2]
    assert last.startswith("squares  [########################]  100 %  500/500")
