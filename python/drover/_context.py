"""A multiprocessing context whose processes, queues and locks are drover's."""

from __future__ import annotations

from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any

from drover import _connection, _pool, _process, _queues, _sharedctypes, _start_methods, _synchronize, _template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.managers import SyncManager

    from typing_extensions import Unpack

    from drover._types import PoolOptions

__all__ = ["DroverContext", "default"]

_METHODS = (_start_methods.NAME, *_start_methods.STANDARD)


class DroverContext(_sharedctypes.Makers, BaseContext):
    """A multiprocessing context whose processes, queues and locks are drover's."""

    _name = _start_methods.NAME
    _chosen: str | None = None
    Process = _process.Process

    def get_context(self, method: str | None = None) -> DroverContext:
        """Return this context, for every start method: processes are fresh interpreters, also for "fork".

        The standard contexts are those of `multiprocessing.get_context`. Raises ValueError for an unknown name.
        """
        _check_method(method)
        return self

    def get_start_method(self, allow_none: bool = False) -> str | None:
        """Return the name that was set, or "drover"."""
        return self._chosen or (None if allow_none else self._name)

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """Remember the name of a start method; it does not change how processes are started."""
        if self._chosen is not None and not force:
            raise RuntimeError("context has already been set")
        _check_method(method)
        self._chosen = method

    def get_all_start_methods(self) -> list[str]:
        """Return the names that `get_context` accepts, first "drover"; all of them start processes alike."""
        return list(_METHODS)

    def set_forkserver_preload(self, module_names: list[str]) -> None:
        """Set the modules that the template imports; multiprocessing's name for `drover.set_preload`."""
        _template.set_preload(module_names)

    def _check_available(self) -> None:
        """Do nothing: the start method is always available."""

    def Manager(self) -> SyncManager:  # noqa: N802 (here and below: multiprocessing's names)
        """Start a process that holds Python objects for others, and return its manager."""
        from multiprocessing.managers import SyncManager  # noqa: PLC0415 (imported only if needed)

        manager = SyncManager(serializer="drover", ctx=self)
        manager.start()
        return manager

    def Lock(self) -> _synchronize.Lock:  # noqa: N802
        """Create a lock."""
        return _synchronize.Lock()

    def RLock(self) -> _synchronize.RLock:  # noqa: N802
        """Create a lock that the thread which holds it may acquire again."""
        return _synchronize.RLock()

    def Condition(self, lock: _synchronize.Lock | _synchronize.RLock | None = None) -> _synchronize.Condition:  # noqa: N802
        """Create a condition variable."""
        return _synchronize.Condition(lock)

    def Semaphore(self, value: int = 1) -> _synchronize.Semaphore:  # noqa: N802
        """Create a semaphore."""
        return _synchronize.Semaphore(value)

    def BoundedSemaphore(self, value: int = 1) -> _synchronize.BoundedSemaphore:  # noqa: N802
        """Create a bounded semaphore."""
        return _synchronize.BoundedSemaphore(value)

    def Event(self) -> _synchronize.Event:  # noqa: N802
        """Create an event."""
        return _synchronize.Event()

    def Barrier(  # noqa: N802
        self, parties: int, action: Callable[[], object] | None = None, timeout: float | None = None
    ) -> _synchronize.Barrier:
        """Create a barrier."""
        return _synchronize.Barrier(parties, action, timeout)

    def Queue(self, maxsize: int = 0) -> _queues.Queue[Any]:  # noqa: N802
        """Create a queue."""
        return _queues.Queue(maxsize)

    def JoinableQueue(self, maxsize: int = 0) -> _queues.JoinableQueue[Any]:  # noqa: N802
        """Create a queue with `task_done` and `join`."""
        return _queues.JoinableQueue(maxsize)

    def SimpleQueue(self) -> _queues.SimpleQueue[Any]:  # noqa: N802
        """Create an unbounded queue with the interface of multiprocessing's SimpleQueue."""
        return _queues.SimpleQueue()

    def Pipe(self, duplex: bool = True) -> tuple[_connection.PipeConnection, _connection.PipeConnection]:  # noqa: N802
        """Create two connected ends. Unless `duplex`, the first only receives and the second only sends."""
        return _connection.Pipe(duplex)

    def Pool(  # noqa: N802
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        **options: Unpack[PoolOptions],
    ) -> _pool.Pool:
        """Create a pool; the options are those of `drover.Pool`."""
        return _pool.Pool(processes, initializer, initargs, maxtasksperchild, **options)


def _check_method(method: str | None) -> None:
    if method not in (None, *_METHODS):
        raise ValueError(f"cannot find context for {method!r}")


default = DroverContext()
_start_methods.register(default)
