"""A concurrent.futures executor on a pool: a worker that dies fails only the task it ran."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, overload

from drover import _core, _functions, _progress
from drover._errors import CANNOT_START, Cancelled, Error, InvalidArgument, PeerLost
from drover._pool import Pool
from drover._results import result_of
from drover._tasks import chunks_of
from drover._types import Item, Parameters, Result

if TYPE_CHECKING:
    from typing_extensions import TypeVar, Unpack

    from drover._types import PoolOptions

    Second = TypeVar("Second", default=Any)

__all__ = ["Executor", "Future"]

_log = logging.getLogger("concurrent.futures")
_SHUT_DOWN = "cannot schedule new futures after shutdown"


class _OwnPool(Pool):
    """The pool of an executor; unlike a pool of its own, it may be dropped without being closed."""

    _is_executors = True

    def __del__(self) -> None:
        """Do not warn."""


def _initialize(initializer: Callable[..., object], *initargs: Any) -> None:
    """Run the initializer, and log its error as concurrent.futures does."""
    try:
        initializer(*initargs)
    except BaseException:
        _log.critical("Exception in initializer:", exc_info=True)
        raise


class WorkerLost(PeerLost, BrokenProcessPool):
    """The worker that ran a call has died. Only that call failed; the executor goes on.

    It is a BrokenProcessPool, too, for programs that catch that.
    """


def _lost(error: Error) -> Error:
    return WorkerLost(error.message, error.remedy) if isinstance(error, PeerLost) else error


class Future(futures.Future[Result]):
    """The future result of a call; a `concurrent.futures.Future`."""

    _calls: _core.Calls | None = None
    _executor: Executor | None = None

    def cancel(self) -> bool:
        """Cancel the call if it has not started; return whether it is cancelled."""
        calls = self._calls
        if calls is None:
            return super().cancel()
        calls.cancel()  # settles this future if it succeeds
        return self.cancelled()

    def running(self) -> bool:
        """Return whether a worker is running the call."""
        calls = self._calls
        try:
            return calls is not None and calls.is_running(0)
        except InvalidArgument:  # another thread took the result just now
            return False

    def _finish(self) -> None:
        """Take the result, on a thread of the pool. Until then `cancel` must ask the pool, which refuses."""
        try:
            self._settle(self._calls, self._executor)
        finally:
            self._calls = self._executor = None

    def _settle(self, calls: Any, executor: Any) -> None:
        try:
            raw = calls.take(0)
        except Cancelled:
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        except CANNOT_START as error:
            self.set_exception(executor._broken_by(error) or _lost(error))
            return
        except BaseException as error:
            self.set_exception(error)
            return
        finally:
            executor._forget(self)
        try:
            value = result_of(raw)
        except BaseException as error:  # raised by the task
            self.set_exception(error)
        else:
            self.set_result(value)


class _MapResults:
    """The results of `map`. It does not keep the executor alive, so unread results do not keep workers running."""

    def __init__(self, executor: Executor, calls: _core.Calls) -> None:
        self._executor = weakref.ref(executor)
        self._calls = calls
        self._is_broken = False

    def close(self, executor: Executor) -> None:
        """Note that all calls are done; the executor may go away from now on."""
        try:
            self._is_broken = executor._cannot_start()
        finally:
            executor._forget(self._calls)

    def in_order(self, end: float | None) -> Iterator[Any]:
        """Wait for each result in order."""
        calls = self._calls
        try:
            for index in range(len(calls)):
                if not calls.wait_one(index, None if end is None else max(0.0, end - time.monotonic())):
                    raise futures.TimeoutError
                try:
                    raw = calls.take(index)
                except CANNOT_START as error:
                    raise self._broken_by(error) or _lost(error) from None
                except Cancelled as error:
                    raise futures.CancelledError from error
                yield result_of(raw)
        finally:
            calls.cancel()

    def _broken_by(self, error: Error) -> BrokenProcessPool | None:
        executor = self._executor()
        if executor is not None:
            return executor._broken_by(error)
        return BrokenProcessPool(str(error)) if self._is_broken else None


class Executor(futures.Executor):
    """A `concurrent.futures.Executor` that runs calls in the workers of a pool.

    The first five arguments are those of `concurrent.futures.ProcessPoolExecutor` (`mp_context` is ignored); the
    other options are those of `drover.Pool`. Unlike ProcessPoolExecutor, it survives the death of a worker: the call
    that the worker ran raises PeerLost, or is retried with `retry=n`. BrokenProcessPool without PeerLost means that
    workers cannot be started.

    >>> import drover
    >>> with drover.Executor(2) as executor:
    ...     executor.submit(pow, 2, 10).result()
    1024
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        max_tasks_per_child: int | None = None,
        **options: Unpack[PoolOptions],
    ) -> None:
        """Start the workers without waiting for them."""
        del mp_context
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None:
            if not callable(initializer):
                raise TypeError("initializer must be a callable")
            initializer, initargs = _initialize, (initializer, *initargs)
        options.setdefault("name", "executor")
        self._pool = _OwnPool(max_workers, initializer, initargs, max_tasks_per_child, **options)
        self._max_workers = len(self._pool._core.numbers())
        self._pending: dict[Future[Any] | _core.Calls, None] = {}  # in order of submission
        self._lock = threading.Lock()  # never held while user code runs
        self._is_shut_down = False
        self._is_joined = False
        self._broken: BrokenProcessPool | None = None
        _executors.add(self)

    def _begin(self, work: Future[Any] | _core.Calls) -> None:
        """Register work before its submission; raise if the executor takes none."""
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._is_shut_down:
                raise RuntimeError(_SHUT_DOWN)
            self._pending[work] = None

    def _forget(self, work: Future[Any] | _core.Calls) -> None:
        """Unregister work that is done."""
        self._pending.pop(work, None)

    def _broken_by(self, error: Error) -> BrokenProcessPool | None:
        """Return the BrokenProcessPool to raise for an error, and remember it, if workers cannot be started."""
        if self._broken is None and self._cannot_start():
            self._broken = BrokenProcessPool(str(error))
        return self._broken

    def _cannot_start(self) -> bool:
        """Return whether the pool has given up on all of its workers."""
        return not self._is_shut_down and not self._pool._core.numbers()

    def _refusal(self, error: BaseException) -> BaseException:
        """Translate an error of submitting to what concurrent.futures raises."""
        if isinstance(error, CANNOT_START):
            return self._broken_by(error) or error
        if isinstance(error, Cancelled) and self._is_shut_down:  # another thread shut it down meanwhile
            return RuntimeError(_SHUT_DOWN)
        return error

    def submit(
        self, fn: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Call a function in a worker and return the future of its result.

        Raises the error of pickling at once if the function or an argument cannot be sent, and RuntimeError after
        `shutdown`.
        """
        return self._submit(fn, args, kwargs)

    def _submit(self, fn: Callable[..., Any], args: Any, kwargs: Any, title: str | None = None) -> Future[Any]:
        future: Future[Any] = Future()
        calls = self._pool._calls(fn, _functions.APPLIED, title=title)
        future._calls = calls
        future._executor = self  # keeps the executor alive until the result is there
        self._begin(future)
        try:
            calls.submit((args, kwargs))
        except BaseException as error:
            self._forget(future)
            refusal = self._refusal(error)
            if refusal is error:
                raise
            raise refusal from error
        calls.close(future._finish)
        return future

    @overload
    def map(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        /,
        *,
        timeout: float | None = None,
        chunksize: int = 1,
        progress: Any = None,
    ) -> Iterator[Result]: ...
    @overload
    def map(
        self,
        fn: Callable[[Item, Second], Result],
        items: Iterable[Item],
        others: Iterable[Second],
        /,
        *,
        timeout: float | None = None,
        chunksize: int = 1,
        progress: Any = None,
    ) -> Iterator[Result]: ...
    @overload
    def map(
        self,
        fn: Callable[..., Result],
        first: Iterable[Any],
        second: Iterable[Any],
        third: Iterable[Any],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: Any = None,
    ) -> Iterator[Result]: ...
    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: Any = None,
    ) -> Iterator[Any]:
        """Call a function for each set of items, and return an iterator over the results in order.

        All calls are submitted at once, in tasks of `chunksize` items. The iterator raises TimeoutError if a result
        is not there `timeout` seconds after this call. `progress` is that of `Pool.map` and counts results as they
        are taken.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        is_chunked = chunksize > 1
        way = _functions.MANY_SPREAD if is_chunked else _functions.EACH_SPREAD
        calls = self._pool._calls(fn, way)
        items = zip(*iterables, strict=False)
        calls.set_items(chunks_of(items, chunksize) if is_chunked else items)
        self._begin(calls)
        reader = _MapResults(self, calls)
        try:
            calls.feed(is_bounded=False)
        finally:
            calls.close(functools.partial(reader.close, self))  # keeps the executor alive until all are done
        results = reader.in_order(end)
        items = (item for chunk in results for item in chunk) if is_chunked else results
        if not _progress.is_wanted(progress):
            return items
        return _progress.Counted(items, progress, _functions.title_of(fn), _progress.length_of(*iterables))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse new calls, and end the workers once the submitted calls are done.

        With `wait`, returns after that; with `cancel_futures`, calls that have not started are cancelled.
        """
        with self._lock:
            is_first = not self._is_shut_down
            self._is_shut_down = True
        if cancel_futures:
            self._cancel_pending()
        self._pool.close()
        if wait:
            self._join()
        elif is_first:
            threading.Thread(target=self._join, name="drover executor").start()

    def _cancel_pending(self) -> None:
        """Cancel calls that have not started, except the oldest ones: one per worker is as good as started."""
        workers = self._max_workers
        for work in list(self._pending):
            is_future = isinstance(work, Future)
            if not is_future or workers <= 0:
                work.cancel()
            workers -= 1 if is_future else work.in_flight

    def _abort(self) -> None:
        """Refuse new calls and kill the workers, whatever they run."""
        with self._lock:
            self._is_shut_down = True
        self._pool.terminate()
        self._join()

    def _is_usable(self) -> bool:
        """Return whether calls can be submitted, as far as is known."""
        return not self._is_shut_down and self._broken is None and bool(self._pool._core.numbers())

    def _join(self) -> None:
        self._pool.join()
        self._is_joined = True

    def workers(self) -> list[dict[str, Any]]:
        """Return a description of each worker; see `Pool.workers`."""
        return self._pool.workers()


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def _shut_down_all() -> None:
    """Finish all submitted calls before the interpreter exits, as concurrent.futures does."""
    for executor in list(_executors):
        if executor._is_joined:
            continue
        try:
            executor.shutdown()
        except Exception:
            _log.critical("Exception in shutdown of an executor:", exc_info=True)


def _forget_all() -> None:
    """Reset this module in a forked child: executors stay with the parent."""
    for executor in list(_executors):
        executor._lock = threading.Lock()
    _executors.clear()


threading._register_atexit(_shut_down_all)
os.register_at_fork(after_in_child=_forget_all)
