"""Results of a pool's tasks, as multiprocessing has them."""

from __future__ import annotations

import collections
import pickle
import threading
import time
from itertools import chain
from multiprocessing import TimeoutError as TookTooLong
from typing import TYPE_CHECKING, Any

from drover import _core, _objects

if TYPE_CHECKING:
    from drover._pool import Pool

__all__ = ["AsyncResult", "IMapIterator", "MapResult", "result_of"]


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
    _size = 1  # items of a task
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
    """Results one by one. More tasks are begun as results are taken; those of a dropped iterator are not.

    After Ctrl-C it can be asked again. If it is dropped instead, what has not begun never does.
    """

    _is_interrupted = False

    def __init__(self, pool: Pool, calls: _core.Calls, is_ordered: bool, is_chunked: bool = False) -> None:
        """Made by the calls of a pool. Tasks may be chunks of items."""
        self._is_chunked = is_chunked
        self._items: collections.deque[Any] = collections.deque()  # of a chunk, and not given yet
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
        try:
            self._is_interrupted = False
            return self._next_item(timeout) if self._is_chunked else self._next(timeout)
        except KeyboardInterrupt as interrupt:
            self._is_interrupted = True
            del self  # prompts and notebooks keep the last exception, and its frames would keep this
            raise interrupt.with_traceback(None)  # noqa: B904 (it is the same)

    __next__ = next  # noqa: A003 (multiprocessing's name)

    def __del__(self) -> None:
        """Give up what has not begun, if Ctrl-C was the end of it."""
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
        except Exception:
            raise
        except BaseException:
            self._unread.append(raw)
            raise
        if is_good:
            return value
        raise value

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
