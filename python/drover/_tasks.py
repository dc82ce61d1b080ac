"""The call methods of a pool, with the interface of multiprocessing's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from drover import _core, _functions, _progress
from drover._results import AsyncResult, IMapIterator, MapResult
from drover._types import Item, Result

if TYPE_CHECKING:
    from drover._pool import Pool

__all__ = ["TaskCalls", "chunks_of"]

_CHUNKS_PER_WORKER = 4


def chunks_of(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """Cut items into tuples of at most `size`."""
    source = iter(items)
    while chunk := tuple(islice(source, size)):
        yield chunk


class TaskCalls:
    """The call methods of a pool: apply, map, imap and their variants."""

    _task_options: _core.TaskOptions

    def _target(self) -> Pool:
        raise NotImplementedError

    def _calls(
        self, func: Callable[..., Any], way: int, is_ordered: bool = True, title: str | None = None
    ) -> _core.Calls:
        title = title or _functions.title_of(func)
        return self._target()._core.calls(title, *_functions.encode(func, way), self._task_options, is_ordered)

    def apply(
        self, func: Callable[..., Result], args: Iterable[Any] = (), kwds: Mapping[str, Any] | None = None
    ) -> Result:
        """Call a function in a worker and return its result, or raise its exception."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., Result],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callable[[Result], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[Result]:
        """Call a function in a worker; return an AsyncResult.

        `callback` is called with the result, `error_callback` with the exception, on a thread of the pool.
        """
        pool = self._target()
        pool._check_running()
        calls = self._calls(func, _functions.APPLIED)
        result = AsyncResult(pool, calls, callback, error_callback)
        calls.submit((tuple(args), dict(kwds) if kwds else {}))
        result._close()
        return result

    def map(
        self,
        func: Callable[[Item], Result],
        iterable: Iterable[Item],
        chunksize: int | None = None,
        *,
        progress: Any = None,
    ) -> list[Result]:
        """Call a function for each item and return all results in order; raise the first exception of a task.

        A task has `chunksize` items; the default makes about four tasks per worker. `progress` shows how far the call
        is:

        - True: a bar on a terminal or in a notebook, by tqdm if it is installed.
        - a str: the same, with this title.
        - a function: called with the number of items done and the total.
        - an object with `update`: called with the number of items done since the last call.
        """
        return self._map_now(func, iterable, chunksize, _functions.EACH, progress)

    def starmap(
        self,
        func: Callable[..., Result],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        *,
        progress: Any = None,
    ) -> list[Result]:
        """Call a function for each item, a tuple of its arguments; otherwise the same as `map`."""
        return self._map_now(func, iterable, chunksize, _functions.EACH_SPREAD, progress)

    def map_async(
        self,
        func: Callable[[Item], Result],
        iterable: Iterable[Item],
        chunksize: int | None = None,
        callback: Callable[[list[Result]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult[Result]:
        """Call a function for each item; return a MapResult. The callbacks are those of `apply_async`."""
        return self._map_later(func, iterable, chunksize, _functions.EACH, (callback, error_callback))

    def starmap_async(
        self,
        func: Callable[..., Result],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[list[Result]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult[Result]:
        """Call a function for each item, a tuple of its arguments; otherwise the same as `map_async`."""
        return self._map_later(func, iterable, chunksize, _functions.EACH_SPREAD, (callback, error_callback))

    def _map(
        self, func: Any, iterable: Any, chunksize: int | None, way: int, callbacks: Any = (None, None)
    ) -> MapResult[Any]:
        pool = self._target()
        pool._check_running()
        if not hasattr(iterable, "__len__"):
            iterable = list(iterable)
        if chunksize is None:
            chunksize = -(-len(iterable) // (max(1, len(pool._core.numbers())) * _CHUNKS_PER_WORKER))
        is_chunked = chunksize > 1
        result = MapResult(pool, self._calls(func, _many(way) if is_chunked else way), *callbacks)
        result._is_chunked = is_chunked
        result._size = max(1, chunksize)
        result._calls.set_items(chunks_of(iterable, chunksize) if is_chunked else iter(iterable))
        return result

    def _map_now(self, func: Any, iterable: Any, chunksize: int | None, way: int, progress: Any) -> list[Any]:
        if _progress.is_wanted(progress) and not hasattr(iterable, "__len__"):
            iterable = list(iterable)
        result = self._map(func, iterable, chunksize, way)
        try:
            if _progress.is_wanted(progress):
                _progress.follow(result._calls, progress, _functions.title_of(func), len(iterable), result._size)
            while not result._calls.feed():
                result._calls.wait_room()
            result._close()
            return result.get()
        except BaseException:  # Ctrl-C, or an item cannot be sent: do not start the rest
            result._calls.cancel()
            raise

    def _map_later(self, func: Any, iterable: Any, chunksize: int | None, way: int, callbacks: Any) -> MapResult[Any]:
        result = self._map(func, iterable, chunksize, way, callbacks)
        try:
            is_fed = result._calls.feed()
        except BaseException:
            result._calls.cancel()
            raise
        if is_fed:
            result._close()
        else:
            result._feed_later()
        return result

    def imap(
        self, func: Callable[[Item], Result], iterable: Iterable[Item], chunksize: int = 1, *, progress: Any = None
    ) -> IMapIterator[Result]:
        """Call a function for each item; return an iterator over the results in order.

        Tasks are submitted as results are taken, so `iterable` may be infinite. `progress` is that of `map` and
        counts results as they are taken.
        """
        return self._imap(func, iterable, chunksize, True, progress)

    def imap_unordered(
        self, func: Callable[[Item], Result], iterable: Iterable[Item], chunksize: int = 1, *, progress: Any = None
    ) -> IMapIterator[Result]:
        """Call a function for each item; return an iterator over the results in the order in which they come."""
        return self._imap(func, iterable, chunksize, False, progress)

    def _imap(self, func: Any, iterable: Any, chunksize: int, is_ordered: bool, progress: Any) -> Any:
        pool = self._target()
        pool._check_running()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        way = _functions.EACH if chunksize == 1 else _functions.MANY
        calls = self._calls(func, way, is_ordered)
        calls.set_items(iter(iterable) if chunksize == 1 else chunks_of(iterable, chunksize))
        results = IMapIterator(pool, calls, is_ordered, chunksize > 1)
        pool._iterators.add(results)
        if not _progress.is_wanted(progress):
            return results
        return _progress.Counted(results, progress, _functions.title_of(func), _progress.length_of(iterable))


def _many(way: int) -> int:
    return _functions.MANY if way == _functions.EACH else _functions.MANY_SPREAD
