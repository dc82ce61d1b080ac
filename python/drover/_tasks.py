"""Calls of a pool, and their results as multiprocessing has them."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from multiprocessing import TimeoutError as TookTooLong
from typing import TYPE_CHECKING, Any

from drover import _core, _functions, _objects

if TYPE_CHECKING:
    from drover._pool import Pool

__all__ = ["AsyncResult", "IMapIterator", "MapResult", "TaskCalls", "chunks_of", "result_of"]

_CHUNKS_PER_WORKER = 4


def _outcome_of(raw: Any) -> tuple[bool, Any]:
    """Give whether a task returned, and what it returned or raised. Raises only what reading that raises."""
    if type(raw) is bytes:
        return True, pickle.loads(raw)
    is_error, payload, tensors = raw
    return not is_error, _objects.loads(payload, tensors)


def result_of(raw: Any) -> Any:
    """Give what a task returned, or raise what it raised."""
    is_good, value = _outcome_of(raw)
    if is_good:
        return value
    raise value


class AsyncResult:
    """The result of a task, to come."""

    def __init__(self, pool: Pool, calls: _core.Calls, callback: Any = None, error_callback: Any = None) -> None:
        """Made by the calls of a pool."""
        self._pool: Pool | None = pool  # which lives as long as somebody waits for results
        self._calls = calls
        self._callback = callback
        self._error_callback = error_callback
        self._outcome: tuple[bool, Any] | None = None
        self._raws: list[Any] = []  # taken, and not settled yet
        self._lost: Exception | None = None  # why there are no more of them
        self._lock = threading.Lock()
        self._told = threading.Event() if callback or error_callback else None
        self._feed_error: BaseException | None = None
        self._is_fed = False

    def _close(self) -> None:
        """All tasks are submitted."""
        self._is_fed = True
        self._calls.close(None if self._told is None else self._tell)

    def _tell(self) -> None:
        """Call back, on a thread of the pool; then let those go on who wait."""
        try:
            is_good, value = self._settle()
            call = self._callback if is_good else self._error_callback
            if call is not None:
                call(value)
        finally:
            self._told.set()

    def ready(self) -> bool:
        """Tell whether it is there."""
        if self._told is not None:
            return self._told.is_set()
        return self._outcome is not None or (self._is_fed and self._calls.under_way == 0)

    def successful(self) -> bool:
        """Tell whether the task returned and did not raise. Only when it is there."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._settle()[0]

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is there."""
        self._wait(timeout)

    def _wait(self, timeout: float | None) -> bool:
        if self._told is not None:
            return self._told.wait(timeout)
        return self._outcome is not None or self._calls.wait_all(_seconds(timeout))

    def get(self, timeout: float | None = None) -> Any:
        """Wait for it and give it, or raise what the task raised; TimeoutError if it is not in time."""
        if not self._wait(timeout):
            raise TookTooLong
        is_good, value = self._settle()
        if is_good:
            return value
        raise value

    def cancel(self) -> bool:
        """Give up what has not begun; tell whether that is everything."""
        return self._calls.cancel()

    def _settle(self) -> tuple[bool, Any]:
        """Learn how it ended, once. Ctrl-C meanwhile is the caller's, and it can be asked for again."""
        with self._lock:
            if self._outcome is None:
                try:
                    self._fetch()
                    self._outcome = self._read()
                except Exception as error:  # what cannot be read
                    self._outcome = (False, error)
                self._raws = []
                self._pool = None
            return self._outcome

    def _fetch(self) -> None:
        """Take what the tasks gave. Nothing is lost between the two lists: no signal is handled there."""
        calls, raws = self._calls, self._raws
        if self._lost is not None or len(raws) == len(calls):
            return
        try:
            if calls.is_good:
                raws.extend(chain.from_iterable(map(_core.Calls.take_all, (calls,))))
            else:
                raws.extend(map(calls.take, range(len(raws), len(calls))))
        except Exception as error:  # the pool's; what came before counts first
            self._lost = error

    def _read(self) -> tuple[bool, Any]:
        return (False, self._lost) if self._lost is not None else _outcome_of(self._raws[0])


class MapResult(AsyncResult):
    """The results of many tasks, to come."""

    _is_chunked = False
    _feeding: threading.Event | None = None  # set when all are submitted, where a thread does it

    def _feed_later(self) -> None:
        self._feeding = threading.Event()
        threading.Thread(target=self._feed, name="drover map feeder", daemon=True).start()

    def _feed(self) -> None:
        """Submit all tasks, as others are done. What goes wrong is raised where results are asked for."""
        try:
            while not self._calls.feed():
                self._calls.wait_room()
        except BaseException as error:  # kept
            self._feed_error = error
        self._close()
        self._feeding.set()

    def _wait(self, timeout: float | None) -> bool:
        if self._feeding is None or self._told is not None:
            return super()._wait(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        if not self._feeding.wait(timeout):
            return False
        return super()._wait(None if end is None else max(0.0, end - time.monotonic()))

    def _read(self) -> tuple[bool, Any]:
        if self._feed_error is not None:
            return False, self._feed_error
        if self._calls.is_good:
            values = list(map(pickle.loads, self._raws))
        else:
            values = []
            for is_good, value in map(_outcome_of, self._raws):
                if not is_good:
                    return False, value
                values.append(value)
        if self._lost is not None:
            return False, self._lost
        return True, list(chain.from_iterable(values)) if self._is_chunked else values


class IMapIterator:
    """Results one by one. More tasks are begun as results are taken; those of a dropped iterator are not."""

    def __init__(self, pool: Pool, calls: _core.Calls, is_ordered: bool) -> None:
        """Made by the calls of a pool."""
        self._pool = pool
        self._calls = calls
        self._is_ordered = is_ordered
        self._given = 0
        self._turn = threading.Lock()  # of who gets the next result, and waits for it
        self._unread: list[Any] = []  # results that Ctrl-C kept from being read
        self._lock = threading.Lock()  # of who submits
        self._feed_error: BaseException | None = None
        self._feed()

    def _feed(self, is_bounded: bool = True) -> None:
        if self._calls.is_exhausted:
            return
        try:
            self._calls.feed(is_bounded)
        except BaseException as error:
            if self._calls.is_exhausted:
                self._feed_error = error  # raised when what came before it was given
            if not (self._calls.is_exhausted and isinstance(error, Exception)):
                raise  # Ctrl-C, at once; and again in the end if items are missing for it

    def _feed_all(self) -> None:
        with self._lock:
            self._feed(is_bounded=False)

    def __iter__(self) -> IMapIterator:
        """Give itself."""
        return self

    def next(self, timeout: float | None = None) -> Any:
        """Wait for the next result and give it, or raise what its task raised."""
        raw = self._unread.pop(0) if self._unread else self._next_raw(timeout)
        try:
            is_good, value = _outcome_of(raw)
        except Exception:
            raise
        except BaseException:
            self._unread.append(raw)
            raise
        if is_good:
            return value
        raise value

    __next__ = next  # noqa: A003 (multiprocessing's name)

    def _next_raw(self, timeout: float | None) -> Any:
        if timeout is None:
            with self._turn:  # Ctrl-C cannot leave it taken
                self._prepare()
                return self._calls.take(self._wait(None))
        end = time.monotonic() + timeout
        if not self._turn.acquire(timeout=min(_seconds(timeout), threading.TIMEOUT_MAX)):
            raise TookTooLong
        try:
            self._prepare()
            return self._calls.take(self._wait(_seconds(end - time.monotonic())))
        finally:
            self._turn.release()

    def _prepare(self) -> None:
        """See to it that there is a task to wait for, or raise what ends the results."""
        with self._lock:
            self._feed()
            if self._given < len(self._calls):
                return
            error, self._feed_error = self._feed_error, None
        raise StopIteration if error is None else error

    def _wait(self, timeout: float | None) -> int:
        if self._is_ordered:
            index = self._given if self._calls.wait_one(self._given, timeout) else None
        else:
            index = self._calls.wait_next(timeout)
        if index is None:
            raise TookTooLong
        self._given += 1
        return index


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None else max(0.0, timeout)


def chunks_of(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """Cut items into tuples of so many."""
    source = iter(items)
    while chunk := tuple(islice(source, size)):
        yield chunk


class TaskCalls:
    """The calls of a pool, as multiprocessing has them."""

    _task_options: _core.TaskOptions

    def _target(self) -> Pool:
        raise NotImplementedError

    def _calls(self, func: Callable[..., Any], way: int, is_ordered: bool = True) -> _core.Calls:
        title = _functions.title_of(func)
        return self._target()._core.calls(title, *_functions.encode(func, way), self._task_options, is_ordered)

    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: Any = None) -> Any:
        """Call a function in some worker and give its result."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Any = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult:
        """Call a function in some worker; its result comes later."""
        self._target()._check_running()
        result = AsyncResult(self._target(), self._calls(func, _functions.APPLIED), callback, error_callback)
        result._calls.submit((tuple(args), dict(kwds or {})))
        result._close()
        return result

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """Call a function for each item, and give all results in order."""
        return self._map_now(func, iterable, chunksize, _functions.EACH)

    def starmap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """Do the same for items that are tuples of arguments."""
        return self._map_now(func, iterable, chunksize, _functions.EACH_SPREAD)

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult:
        """Call a function for each item; the results come later."""
        return self._map_later(func, iterable, chunksize, _functions.EACH, (callback, error_callback))

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult:
        """Do the same for items that are tuples of arguments."""
        return self._map_later(func, iterable, chunksize, _functions.EACH_SPREAD, (callback, error_callback))

    def _map(
        self, func: Any, iterable: Any, chunksize: int | None, way: int, callbacks: Any = (None, None)
    ) -> MapResult:
        pool = self._target()
        pool._check_running()
        if not hasattr(iterable, "__len__"):
            iterable = list(iterable)
        if chunksize is None:
            chunksize = -(-len(iterable) // (len(pool._core.numbers()) * _CHUNKS_PER_WORKER))
        is_chunked = chunksize > 1
        result = MapResult(pool, self._calls(func, _many(way) if is_chunked else way), *callbacks)
        result._is_chunked = is_chunked
        result._calls.set_items(chunks_of(iterable, chunksize) if is_chunked else iter(iterable))
        return result

    def _map_now(self, func: Any, iterable: Any, chunksize: int | None, way: int) -> list[Any]:
        result = self._map(func, iterable, chunksize, way)
        try:
            while not result._calls.feed():
                result._calls.wait_room()
            result._close()
            return result.get()
        except BaseException:  # Ctrl-C, or what cannot be sent: the rest need not begin
            result._calls.cancel()
            raise

    def _map_later(self, func: Any, iterable: Any, chunksize: int | None, way: int, callbacks: Any) -> MapResult:
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

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
        """Give results one by one, in order, as they are asked for."""
        return self._imap(func, iterable, chunksize, True)

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> Iterator[Any]:
        """Give results one by one, as they come."""
        return self._imap(func, iterable, chunksize, False)

    def _imap(self, func: Any, iterable: Any, chunksize: int, is_ordered: bool) -> Any:
        pool = self._target()
        pool._check_running()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        way = _functions.EACH if chunksize == 1 else _functions.MANY
        calls = self._calls(func, way, is_ordered)
        calls.set_items(iter(iterable) if chunksize == 1 else chunks_of(iterable, chunksize))
        results = IMapIterator(pool, calls, is_ordered)
        pool._iterators.add(results)
        return results if chunksize == 1 else (item for chunk in results for item in chunk)


def _many(way: int) -> int:
    return _functions.MANY if way == _functions.EACH else _functions.MANY_SPREAD
