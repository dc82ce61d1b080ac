"""How far calls have come: by functions, bars of the program, tqdm, a line on a terminal; else nothing."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from programs import run


def test_function_and_bar_are_told_everything_once() -> None:
    """For maps with and without chunks, iterators and executors; exceptions of tasks count as well."""
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

        told = []
        tell = lambda done, total: told.append((done, total))

        def check(results, expected, total=100):
            steps = [done for done, _ in told]
            totals = {total for _, total in told}
            print(results == expected, steps == sorted(set(steps)), steps[-1], totals == {total})
            told.clear()

        squares = [x * x for x in range(100)]
        with drover.Pool(2) as pool, drover.Executor(2) as executor:
            check(pool.map(square, range(100), progress=tell), squares)
            check(pool.map(square, iter(range(100)), 1, progress=tell), squares)
            check(pool.starmap(add, [(x, 1) for x in range(100)], 7, progress=tell), list(range(1, 101)))
            check(list(pool.imap(square, range(100), progress=tell)), squares)
            check(sorted(pool.imap_unordered(square, iter(range(100)), 3, progress=tell)), squares, None)
            check(list(executor.map(add, range(100), range(1000), progress=tell)), [2 * x for x in range(100)])
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


def test_tqdm_is_used_where_it_is_there() -> None:
    """With the function's name or the given title, and closed at the end, also after an exception."""
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
sys.modules["tqdm"] = None  # as if it were not installed
import drover

def square(x):
    return x * x

with drover.Pool(2) as pool:
    print(sum(pool.map(square, range(500), 1, progress="squares")))
"""


def test_line_is_drawn_on_a_terminal_only(tmp_path: Path) -> None:
    """On anything else nothing is written."""
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
