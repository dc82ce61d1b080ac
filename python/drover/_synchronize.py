"""Locks and other synchronisation that behaves like multiprocessing's, but recovers when a holder dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing import context
from typing import Any, ClassVar

from drover import _core, _session
from drover._errors import Unsupported

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore", "SharedHandle"]


class SharedHandle:
    """An object that is pickled as a handle, by which other processes of the session open it."""

    _opened_as: ClassVar[Any]
    _core: Any

    def __getstate__(self) -> Any:
        """Return the handle, and keep the object alive until a child that is being started has opened it.

        Raises Unsupported if the child is not one of drover's, which are the ones that join the session.
        """
        if (starting := context.get_spawning_popen()) is not None:
            if not hasattr(starting, "keep_until_joined"):
                raise Unsupported(
                    f"cannot give a drover {type(self).__name__} to a process with the start method "
                    f"{getattr(starting, 'method', type(starting).__name__)!r} of another library",
                    "start it with drover.Process or drover.get_context(), or take both from the other library",
                )
            starting.keep_until_joined(self)
        return self._core.handle

    def __setstate__(self, state: Any) -> None:
        """Open the object in this process."""
        self._core = self._opened_as.open(_session.current(), state)


def _timeout(block: bool, timeout: float | None) -> float | None:
    if not block:
        return 0.0
    return None if timeout is None else max(0.0, timeout)


_TIMED_OUT, _AFTER_DEATH = _core.LockResult.timed_out, _core.LockResult.acquired_after_death


class _LockBase(SharedHandle):
    acquired_after_death = False

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock; return False at the timeout, or at once if not `block` and another thread holds it.

        Sets `acquired_after_death` if the last holder died: the data that the lock guards may be half changed.
        """
        result = self._core.acquire(None if block and timeout is None else _timeout(block, timeout))
        self.acquired_after_death = result is _AFTER_DEATH
        return result is not _TIMED_OUT

    def release(self) -> None:
        """Release the lock."""
        self._core.release()

    def __enter__(self) -> bool:
        """Acquire the lock."""
        self.acquired_after_death = self._core.acquire(None) is _AFTER_DEATH
        return True

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._core.release()


class Lock(_LockBase):
    """A lock between processes. Any thread of any process may release it; the death of its holder frees it.

    >>> import drover
    >>> lock = drover.Lock()
    >>> with lock:
    ...     lock.locked()
    True
    """

    _opened_as = _core.Lock

    def __init__(self, *, ctx: object = None) -> None:
        """Create a free lock."""
        del ctx
        self._core = _core.Lock.make(_session.current())

    def locked(self) -> bool:
        """Return whether the lock is held."""
        return self._core.is_held()

    def __repr__(self) -> str:
        """Show whether the lock is held."""
        return f"<drover.Lock({'held' if self._core.is_held() else 'free'})>"


class RLock(_LockBase):
    """A lock between processes that the thread which holds it may acquire again. The death of its holder frees it."""

    _opened_as = _core.RLock

    def __init__(self, *, ctx: object = None) -> None:
        """Create a free lock."""
        del ctx
        self._core = _core.RLock.make(_session.current())

    def __repr__(self) -> str:
        """Show whether the lock is held."""
        return f"<drover.RLock({'held' if self._core.is_held() else 'free'})>"


class Semaphore(SharedHandle):
    """A semaphore between processes. The permits of a process that dies are released."""

    _opened_as = _core.Semaphore
    _is_bounded = False

    def __init__(self, value: int = 1, *, ctx: object = None) -> None:
        """Create a semaphore with `value` permits. Raises ValueError if it is negative."""
        del ctx
        if value < 0:
            raise ValueError(f"the initial value of a semaphore must be 0 or more, not {value}")
        self._core = _core.Semaphore.make(_session.current(), value, self._is_bounded)

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take a permit; return False at the timeout, or at once if not `block` and there is none.

        Without a timeout, raises PeerLost if no process or thread is left that could release one.
        """
        return self._core.acquire(_timeout(block, timeout))

    def release(self) -> None:
        """Release a permit, or add one."""
        self._core.release(1)

    def get_value(self) -> int:
        """Return the number of free permits."""
        return self._core.value()

    @property
    def _semlock(self) -> Semaphore:
        """This semaphore, for the standard library's queues, which concurrent.futures creates in our context."""
        return self

    def _is_zero(self) -> bool:
        return self.get_value() == 0

    _get_value = get_value

    def __enter__(self) -> bool:
        """Take a permit."""
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        """Release the permit."""
        self.release()

    def __repr__(self) -> str:
        """Show the number of free permits."""
        return f"<drover.{type(self).__name__}(value={self._core.value()})>"


class BoundedSemaphore(Semaphore):
    """A semaphore that never has more than its initial permits: releasing too often raises ValueError."""

    _is_bounded = True


class Condition(SharedHandle):
    """A condition variable between processes: waits for a notification with its lock released."""

    _opened_as = _core.Condition

    def __init__(self, lock: Lock | RLock | None = None, *, ctx: object = None) -> None:
        """Create a condition over a lock, or over a new RLock."""
        del ctx
        if lock is None:
            lock = RLock()
        make = _core.Condition.make_over_lock if isinstance(lock, Lock) else _core.Condition.make_over_rlock
        self._core = make(_session.current(), lock._core)

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock."""
        return self._core.acquire(_timeout(block, timeout)) is not _TIMED_OUT

    def release(self) -> None:
        """Release the lock."""
        self._core.release()

    def __enter__(self) -> bool:
        """Acquire the lock."""
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; return False at the timeout.

        Without a timeout, raises PeerLost, with the lock held, if no process or thread is left that could notify.
        """
        return self._core.wait(_timeout(True, timeout))

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until the predicate is true; return its last value."""
        end = None if timeout is None else time.monotonic() + timeout
        result = predicate()
        while not result:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """Wake at most `n` waiters."""
        self._core.notify(n)

    def notify_all(self) -> None:
        """Wake all waiters."""
        self._core.notify_all()

    def __repr__(self) -> str:
        """Show the number of waiters."""
        return f"<drover.Condition({self._core.waiting()} waiting)>"


class Event(SharedHandle):
    """A flag between processes that can be waited for."""

    _opened_as = _core.Event

    def __init__(self, *, ctx: object = None) -> None:
        """Create a flag that is clear."""
        del ctx
        self._core = _core.Event.make(_session.current())

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._core.is_set()

    def set(self) -> None:
        """Set the flag and wake all waiters."""
        self._core.set()

    def clear(self) -> None:
        """Clear the flag."""
        self._core.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set; return False at the timeout.

        Without a timeout, raises PeerLost if no process or thread is left that could set it.
        """
        return self._core.wait(_timeout(True, timeout))

    def __repr__(self) -> str:
        """Show whether the flag is set."""
        return f"<Event at {id(self):#x} {'set' if self.is_set() else 'unset'}>"


class Barrier:
    """A barrier between processes. The death of a waiting process breaks it, so that the others do not hang."""

    def __init__(
        self,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: float | None = None,
        *,
        ctx: object = None,
    ) -> None:
        """Create a barrier for `parties` threads. One of them runs `action` before any of them passes."""
        del ctx
        self._gate = _Gate(parties)
        # The others wait at a second gate while one runs the action.
        self._second = _Gate(parties) if action is not None else None
        self._action = action
        self._timeout = timeout

    def wait(self, timeout: float | None = None) -> int:
        """Wait for all parties; return a number from 0 to parties - 1 that differs for each.

        Raises threading.BrokenBarrierError if the barrier is broken or reset, or at the timeout, which breaks it.
        """
        timeout = self._timeout if timeout is None else timeout
        index = self._pass(self._gate, timeout)
        if self._action is not None and self._second is not None:
            if index == 0:
                self._run_action()
            self._pass(self._second, timeout)
        return index

    def _pass(self, gate: _Gate, timeout: float | None) -> int:
        index = gate.wait(_timeout(True, timeout))
        if index < 0:
            if gate is self._second and gate.is_broken():
                self._gate.abort()
            raise threading.BrokenBarrierError
        return index

    def _run_action(self) -> None:
        try:
            self._action()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Break the barrier: present and future waiters get BrokenBarrierError."""
        for gate in (self._gate, self._second):
            if gate is not None:
                gate.abort()

    def reset(self) -> None:
        """Return the barrier to its initial state; present waiters get BrokenBarrierError."""
        for gate in (self._second, self._gate):
            if gate is not None:
                gate.reset()

    @property
    def parties(self) -> int:
        """The number of threads that the barrier waits for."""
        return self._gate.parties()

    @property
    def n_waiting(self) -> int:
        """The number of threads that are waiting."""
        return self._gate.waiting()

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken."""
        return self._gate.is_broken()


class _Gate(SharedHandle):
    _opened_as = _core.Barrier

    def __init__(self, parties: int) -> None:
        if parties < 1:
            raise ValueError("parties must be > 0")
        self._core = _core.Barrier.make(_session.current(), parties)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._core, name)
