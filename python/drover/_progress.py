"""How far the calls of a pool have come, shown to whoever waits: by tqdm where it is installed, else by a line."""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing import TimeoutError as TookTooLong
from typing import Any

from drover import _core

__all__ = ["Counted", "follow", "is_wanted", "length_of"]

_PAUSE = 0.02  # seconds between looks while all is under way
_EVERY = 0.1  # seconds between two drawings of a line


def is_wanted(progress: Any) -> bool:
    """Tell whether progress is to be shown. A bar is not asked: some have no truth of their own."""
    return progress is not None and progress is not False


def length_of(*iterables: Iterable[Any]) -> int | None:
    """Give how many items there are, if they are counted without taking them."""
    lengths = [len(items) for items in iterables if hasattr(items, "__len__")]
    return min(lengths) if len(lengths) == len(iterables) else None


class _Line:
    """A line on a terminal."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title = title
        self._total = total or 0
        self._done = 0
        self._began = time.monotonic()
        self._drawn = 0.0

    def update(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._drawn >= _EVERY:
            self._draw(is_over=False)

    def close(self) -> None:
        self._draw(is_over=True)

    def _draw(self, is_over: bool) -> None:
        self._drawn = time.monotonic()
        columns = max(1, shutil.get_terminal_size().columns - 1)
        seconds = self._drawn - self._began
        text = _core.describe_progress(self._title, self._done, self._total, seconds, is_over, columns)
        sys.stderr.write(f"\r{text}\x1b[K" + ("\n" if is_over else ""))
        sys.stderr.flush()


class _Calling:
    """Calls a function of the program with what is done and what there is altogether."""

    def __init__(self, call: Any, total: int | None) -> None:
        self._call = call
        self._total = total
        self._done = 0

    def update(self, count: int) -> None:
        self._done += count
        self._call(self._done, self._total)

    def close(self) -> None:
        pass


class _Lent:
    """A bar of the program's own, which ends it too."""

    def __init__(self, bar: Any) -> None:
        self.update = bar.update

    def close(self) -> None:
        pass


class _Nothing:
    """Shows nothing: nobody looks."""

    def update(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


def _bar(progress: Any, title: str, total: int | None) -> Any:
    """Give what is told of progress. Whether a terminal is there is asked for bars that we make, and no others."""
    if hasattr(progress, "update"):
        return _Lent(progress)
    if callable(progress):
        return _Calling(progress, total)
    title = progress if isinstance(progress, str) else title
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a notebook could have nicer bars
            from tqdm.auto import tqdm  # noqa: PLC0415 (only for this)
    except ImportError:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        return _Line(title, total) if is_terminal else _Nothing()
    return tqdm(total=total, desc=title, disable=None)  # None: not where no terminal is, but in notebooks


def follow(calls: _core.Calls, progress: Any, title: str, total: int, size: int) -> None:
    """Submit all tasks of a map, of so many items each, and wait until they are done; show how far it is."""
    bar = _bar(progress, title, total)
    shown = 0
    is_fed = False
    try:
        while shown < total:
            is_fed = is_fed or calls.feed()
            is_over = calls.wait_all(_PAUSE) and is_fed
            done = total if is_over else min(total, (len(calls) - calls.under_way) * size)
            if done > shown:
                bar.update(done - shown)
                shown = done
    finally:
        bar.close()


class Counted:
    """An iterator whose results are counted as they are taken; what a task raised counts, too."""

    def __init__(self, results: Any, progress: Any, title: str, total: int | None) -> None:
        """Count what another gives."""
        self._results = results
        self._bar = _bar(progress, title, total)

    def __iter__(self) -> Iterator[Any]:
        """Give itself."""
        return self

    def next(self, timeout: float | None = None) -> Any:
        """Give the next result; with a timeout, where the iterator knows it, if it comes in time."""
        try:
            result = next(self._results) if timeout is None else self._results.next(timeout)
        except StopIteration:
            self.close()
            raise
        except TookTooLong:
            raise
        except KeyboardInterrupt as interrupt:
            del self  # as the iterators of a pool do it: frames would keep it
            raise interrupt.with_traceback(None)  # noqa: B904 (it is the same)
        except Exception:
            self._bar.update(1)
            raise
        self._bar.update(1)
        return result

    __next__ = next  # noqa: A003 (multiprocessing's name)

    def close(self) -> None:
        """Show the end. What the iterator has not given is given up if it is one that can be closed."""
        self._bar.close()
        if hasattr(self._results, "close"):
            self._results.close()
