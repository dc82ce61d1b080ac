"""Results of a pool's tasks, with the interface of multiprocessing's."""

from __future__ import annotations

import collections
import pickle
import threading
import time
from itertools import chain
from multiprocessing import TimeoutError as TookTooLong
from typing import TYPE_CHECKING, Any, Generic

from drover import _core, _objects
from drover._types import Result

if TYPE_CHECKING:
    from drover._pool import Pool

__all__ = ["AsyncResult", "IMapIterator", "MapResult", "result_of"]


def _outcome_of(raw: Any) -> tuple[bool, Any]:
    """Return whether a task succeeded, and its result or exception. Raises only the errors of unpickling."""
    if type(raw) is bytes:
        return True, pickle.loads(raw)
    is_error, payload, tensors = raw
    return not is_error, _objects.loads(payload, tensors)


def result_of(raw: Any) -> Any:
    """Return a task's result, or raise its exception."""
    is_good, value = _outcome_of(raw)
    if is_good:
        return value
    raise value


class AsyncResult(Generic[Result]):
    """The future result of a call."""

    def __init__(self, pool: Pool, calls: _core.Calls, callback: Any = None, error_callback: Any = None) -> None:
        """Create a result; called by the pool."""
        self._pool: Pool | None = pool  # kept alive until the result is there
        self._calls = calls
        self._callback = callback
        self._error_callback = error_callback
        self._outcome: tuple[bool, Any] | None = None
        self._raws: list[Any] = []  # taken from the pool, but not unpickled yet
        self._lost: Exception | None = None  # the pool's error for the first result that is missing
        self._lock = threading.Lock()
        self._called_back = threading.Event() if callback or error_callback else None
        self._feed_error: BaseException | None = None
        self._is_fed = False

    def _close(self) -> None:
        """Note that all tasks are submitted."""
        self._is_fed = True
        self._calls.close(None if self._called_back is None else self._call_back)

    def _call_back(self) -> None:
        """Run the callback, on a thread of the pool, then wake waiters."""
        try:
            is_good, value = self._settle(BaseException)  # Ctrl-C is raised on the main thread, not on this one
            call = self._callback if is_good else self._error_callback
            if call is not None:
                call(value)
        finally:
            self._called_back.set()

    def ready(self) -> bool:
        """Return whether the call is done."""
        if self._called_back is not None:
            return self._called_back.is_set()
        return self._outcome is not None or (self._is_fed and self._calls.in_flight == 0)

    def successful(self) -> bool:
        """Return whether the call finished without an exception. Raises ValueError if it is not done."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._settle()[0]

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the call is done, at most `timeout` seconds."""
        self._wait(timeout)

    def _wait(self, timeout: float | None) -> bool:
        if self._called_back is not None:
            return self._called_back.wait(_bounded(timeout))
        return self._outcome is not None or self._calls.wait_all(_seconds(timeout))

    def get(self, timeout: float | None = None) -> Result:
        """Wait for the result and return it, or raise the exception of the call.

        Raises multiprocessing.TimeoutError if it is not there in `timeout` seconds, PeerLost if the worker died, and
        Cancelled if the call was cancelled or the pool terminated.
        """
        if not self._wait(timeout):
            raise TookTooLong
        is_good, value = self._settle()
        if is_good:
            return value
        raise value

    def cancel(self) -> bool:
        """Cancel the tasks that have not started; return whether that is all of them."""
        return self._calls.cancel()

    def _settle(self, caught: type[BaseException] = Exception) -> tuple[bool, Any]:
        """Read the outcome, once. An error of unpickling is the outcome if it is caught; otherwise it is raised."""
        with self._lock:
            if self._outcome is None:
                try:
                    self._fetch()
                    self._outcome = self._read()
                except caught as error:
                    self._outcome = (False, error)
                self._raws = []
                self._pool = None
            return self._outcome

    def _fetch(self) -> None:
        """Take the results from the pool. No signal is handled inside of extend, so none is lost."""
        calls, raws = self._calls, self._raws
        if self._lost is not None or len(raws) == len(calls):
            return
        try:
            if calls.is_good:
                raws.extend(chain.from_iterable(map(_core.Calls.take_all, (calls,))))
            else:
                raws.extend(map(calls.take, range(len(raws), len(calls))))
        except Exception as error:  # an error of the pool; results before it come first
            self._lost = error

    def _read(self) -> tuple[bool, Any]:
        return (False, self._lost) if self._lost is not None else _outcome_of(self._raws[0])


class MapResult(AsyncResult[list[Result]]):
    """The future results of a map."""

    _is_chunked = False
    _size = 1  # items in a task
    _feeding: threading.Event | None = None  # if a thread submits the tasks: set when all are submitted

    def _feed_later(self) -> None:
        self._feeding = threading.Event()
        threading.Thread(target=self._feed, name="drover map feeder", daemon=True).start()

    def _feed(self) -> None:
        """Submit all tasks as others finish. An error is raised where results are read."""
        try:
            while not self._calls.feed():
                self._calls.wait_room()
        except BaseException as error:
            self._feed_error = error
        self._close()
        self._feeding.set()

    def _wait(self, timeout: float | None) -> bool:
        if self._feeding is None or self._called_back is not None:
            return super()._wait(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        if not self._feeding.wait(_bounded(timeout)):
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


class IMapIterator(Generic[Result]):
    """An iterator over the results of a map. More tasks are submitted as results are taken.

    After KeyboardInterrupt it can be used again; if it is dropped instead, tasks that have not started are cancelled.
    """

    _is_interrupted = False

    def __init__(self, pool: Pool, calls: _core.Calls, is_ordered: bool, is_chunked: bool = False) -> None:
        """Create an iterator; called by the pool. If `is_chunked`, each task has several items."""
        self._is_chunked = is_chunked
        self._items: collections.deque[Any] = collections.deque()  # the rest of a chunk
        self._pool = pool
        self._calls = calls
        self._is_ordered = is_ordered
        self._count = 0  # results taken so far
        self._turn = threading.Lock()  # held by the thread that waits for the next result
        self._unread: list[Any] = []  # results whose unpickling Ctrl-C interrupted
        self._lock = threading.Lock()  # held while tasks are submitted
        self._feed_error: BaseException | None = None
        self._feed()

    def _feed(self, is_bounded: bool = True) -> None:
        if self._calls.is_exhausted:
            return
        try:
            self._calls.feed(is_bounded)
        except BaseException as error:
            if self._calls.is_exhausted:
                self._feed_error = error  # raised after the results before it
            if not (self._calls.is_exhausted and isinstance(error, Exception)):
                raise  # Ctrl-C: now, and once more at the end if items are missing because of it

    def _feed_all(self) -> None:
        with self._lock:
            self._feed(is_bounded=False)

    def __iter__(self) -> IMapIterator[Result]:
        """Return this iterator."""
        return self

    def next(self, timeout: float | None = None) -> Result:
        """Wait for the next result and return it, or raise the exception of its task.

        Raises StopIteration at the end, and multiprocessing.TimeoutError if there is no result in `timeout` seconds.
        """
        try:
            self._is_interrupted = False
            return self._next_item(timeout) if self._is_chunked else self._next(timeout)
        except KeyboardInterrupt as interrupt:
            self._is_interrupted = True
            del self  # prompts and notebooks keep the last exception, whose frames would keep this iterator
            raise interrupt.with_traceback(None)  # noqa: B904 (the same exception)

    __next__ = next  # noqa: A003 (multiprocessing's name)

    def __del__(self) -> None:
        """Cancel what has not started if Ctrl-C ended the iteration."""
        if self._is_interrupted:
            self._calls.cancel()

    def _next_item(self, timeout: float | None) -> Any:
        while not self._items:
            self._items.extend(self._next(timeout))
        return self._items.popleft()

    def _next(self, timeout: float | None) -> Any:
        raw = self._unread.pop(0) if self._unread else self._next_raw(timeout)
        try:
            is_good, value = _outcome_of(raw)
        except KeyboardInterrupt:
            self._unread.append(raw)
            raise
        if is_good:
            return value
        raise value

    def _next_raw(self, timeout: float | None) -> Any:
        if timeout is None:
            with self._turn:  # a with statement, so that Ctrl-C cannot leave it locked
                self._prepare()
                return self._calls.take(self._wait(None))
        end = time.monotonic() + timeout
        if not self._turn.acquire(timeout=_bounded(timeout)):
            raise TookTooLong
        try:
            self._prepare()
            return self._calls.take(self._wait(_seconds(end - time.monotonic())))
        finally:
            self._turn.release()

    def _prepare(self) -> None:
        """Submit more tasks; raise StopIteration or the error of submitting if there is no result to wait for."""
        with self._lock:
            self._feed()
            if self._count < len(self._calls):
                return
            error, self._feed_error = self._feed_error, None
        raise StopIteration if error is None else error

    def _wait(self, timeout: float | None) -> int:
        if self._is_ordered:
            index = self._count if self._calls.wait_one(self._count, timeout) else None
        else:
            index = self._calls.wait_next(timeout)
        if index is None:
            raise TookTooLong
        self._count += 1
        return index


def _bounded(timeout: float | None) -> float | None:
    # Threads refuse to wait longer than TIMEOUT_MAX.
    return None if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None else max(0.0, timeout)
