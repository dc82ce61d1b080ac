"""Progress bars for the calls of a pool: by tqdm if it is installed, otherwise a line on the terminal."""

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

_PAUSE = 0.02  # seconds between checks of the progress
_EVERY = 0.1  # seconds between redraws of a line


def is_wanted(progress: Any) -> bool:
    """Return whether to show progress. Does not ask for the truth value of a bar, because some raise an error."""
    return progress is not None and progress is not False


def length_of(*iterables: Iterable[Any]) -> int | None:
    """Return the number of items that `zip` would yield, or None if it is unknown."""
    lengths = [len(items) for items in iterables if hasattr(items, "__len__")]
    return min(lengths) if len(lengths) == len(iterables) else None


class _Line:
    """A bar drawn as a line on the terminal."""

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
    """Calls a user's function with the number of items done and the total."""

    def __init__(self, call: Any, total: int | None) -> None:
        self._call = call
        self._total = total
        self._done = 0

    def update(self, count: int) -> None:
        self._done += count
        self._call(self._done, self._total)

    def close(self) -> None:
        pass


class _Borrowed:
    """A user's bar, which the user also closes."""

    def __init__(self, bar: Any) -> None:
        self.update = bar.update

    def close(self) -> None:
        pass


class _Nothing:
    """Shows nothing."""

    def update(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


def _bar(progress: Any, title: str, total: int | None) -> Any:
    """Return the bar to update. Only bars that we create depend on whether there is a terminal."""
    if hasattr(progress, "update"):
        return _Borrowed(progress)
    if callable(progress):
        return _Calling(progress, total)
    title = progress if isinstance(progress, str) else title
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm suggests ipywidgets in notebooks
            from tqdm.auto import tqdm  # noqa: PLC0415 (imported only if needed)
    except ImportError:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        return _Line(title, total) if is_terminal else _Nothing()
    return tqdm(total=total, desc=title, disable=None)  # None: shown on terminals and in notebooks only


def follow(calls: _core.Calls, progress: Any, title: str, total: int, size: int) -> None:
    """Submit all tasks of a map, each of `size` items, and wait until they are done while showing progress."""
    bar = _bar(progress, title, total)
    shown = 0
    is_fed = False
    try:
        while shown < total:
            is_fed = is_fed or calls.feed()
            is_over = calls.wait_all(_PAUSE) and is_fed
            done = total if is_over else min(total, (len(calls) - calls.in_flight) * size)
            if done > shown:
                bar.update(done - shown)
                shown = done
    finally:
        bar.close()


class Counted:
    """An iterator that counts results, including exceptions of tasks, as they are taken."""

    def __init__(self, results: Any, progress: Any, title: str, total: int | None) -> None:
        """Wrap an iterator."""
        self._results = results
        self._bar = _bar(progress, title, total)

    def __iter__(self) -> Iterator[Any]:
        """Return this iterator."""
        return self

    def next(self, timeout: float | None = None) -> Any:
        """Return the next result. A timeout is passed on to the iterator, which must support it."""
        try:
            result = next(self._results) if timeout is None else self._results.next(timeout)
        except StopIteration:
            self.close()
            raise
        except TookTooLong:
            raise
        except KeyboardInterrupt as interrupt:
            del self  # as in IMapIterator.next: the frames of the traceback would keep it alive
            raise interrupt.with_traceback(None)  # noqa: B904 (the same exception)
        except Exception:
            self._bar.update(1)
            raise
        self._bar.update(1)
        return result

    __next__ = next  # noqa: A003 (multiprocessing's name)

    def close(self) -> None:
        """Finish the bar, and close the iterator if it can be closed, which cancels the remaining results."""
        self._bar.close()
        if hasattr(self._results, "close"):
            self._results.close()
