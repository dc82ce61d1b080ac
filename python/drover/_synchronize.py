"""Locks and their like, with the behaviour of multiprocessing's, and what a holder's death does to them made good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing import context
from typing import Any, ClassVar

from drover import _core, _session

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore", "SharedHandle"]


class SharedHandle:
    """An object that other processes of the session open by its name: how it travels to them."""

    _opened_as: ClassVar[Any]
    _core: Any

    def __getstate__(self) -> Any:
        """Give the name, and see to it that the object exists until a child that is being started has opened it."""
        starting = context.get_spawning_popen()
        keep = getattr(starting, "keep_until_joined", None)
        if keep is not None:
            keep(self)
        return self._core.handle

    def __setstate__(self, state: Any) -> None:
        """Open it here."""
        self._core = self._opened_as.open(_session.current(), state)


def _timeout(block: bool, timeout: float | None) -> float | None:
    if not block:
        return 0.0
    return None if timeout is None else max(0.0, timeout)


class _LockBase(SharedHandle):
    acquired_after_death = False

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Wait until the lock is held; tell whether it is.

        `acquired_after_death` is set if the last holder died with it: what the lock guards may be half changed.
        """
        result = self._core.acquire(None if block and timeout is None else _timeout(block, timeout))
        self.acquired_after_death = result == 2
        return result != 0

    def release(self) -> None:
        """Give the lock back."""
        self._core.release()

    def __enter__(self) -> bool:
        """Acquire it for a block of statements."""
        self.acquired_after_death = self._core.acquire(None) == 2
        return True

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self._core.release()


class Lock(_LockBase):
    """A lock that any thread of any process may release. The death of its holder frees it."""

    _opened_as = _core.Lock

    def __init__(self, *, ctx: object = None) -> None:
        """Make one."""
        del ctx
        self._core = _core.Lock.make(_session.current())

    def locked(self) -> bool:
        """Tell whether anybody holds it."""
        return self._core.is_held()

    def __repr__(self) -> str:
        """Show whether it is held."""
        return f"<drover.Lock({'held' if self._core.is_held() else 'free'})>"


class RLock(_LockBase):
    """A lock that the thread which holds it may acquire again."""

    _opened_as = _core.RLock

    def __init__(self, *, ctx: object = None) -> None:
        """Make one."""
        del ctx
        self._core = _core.RLock.make(_session.current())

    def __repr__(self) -> str:
        """Show whether it is held."""
        return f"<drover.RLock({'held' if self._core.is_held() else 'free'})>"


class Semaphore(SharedHandle):
    """Permits. Those of a process that dies are given back."""

    _opened_as = _core.Semaphore
    _is_bounded = False

    def __init__(self, value: int = 1, *, ctx: object = None) -> None:
        """Make one with so many permits."""
        del ctx
        if value < 0:
            raise ValueError("a semaphore begins with 0 permits or more")
        self._core = _core.Semaphore.make(_session.current(), value, self._is_bounded)

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take a permit; tell whether there was one in time."""
        return self._core.acquire(_timeout(block, timeout))

    def release(self) -> None:
        """Give a permit back, or add one."""
        self._core.release(1)

    def get_value(self) -> int:
        """Give the number of free permits."""
        return self._core.value()

    @property
    def _semlock(self) -> Semaphore:
        """What queues of the standard library, as concurrent.futures makes them in our context, look at."""
        return self

    def _is_zero(self) -> bool:
        return self.get_value() == 0

    _get_value = get_value

    def __enter__(self) -> bool:
        """Take a permit for a block of statements."""
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.release()

    def __repr__(self) -> str:
        """Show how many are free."""
        return f"<drover.{type(self).__name__}(value={self._core.value()})>"


class BoundedSemaphore(Semaphore):
    """A semaphore that never has more permits than at first: releasing once too often is an error."""

    _is_bounded = True


class Condition(SharedHandle):
    """Waiting, with a lock put aside, until another says that something has changed."""

    _opened_as = _core.Condition

    def __init__(self, lock: Lock | RLock | None = None, *, ctx: object = None) -> None:
        """Make one over a lock, or over an RLock of its own."""
        del ctx
        if lock is None:
            lock = RLock()
        make = _core.Condition.make_over_lock if isinstance(lock, Lock) else _core.Condition.make_over_rlock
        self._core = make(_session.current(), lock._core)

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock."""
        return bool(self._core.acquire(_timeout(block, timeout)))

    def release(self) -> None:
        """Release the lock."""
        self._core.release()

    def __enter__(self) -> bool:
        """Acquire the lock for a block of statements."""
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; tell whether it came in time."""
        return self._core.wait(_timeout(True, timeout))

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until the predicate holds; give its last value."""
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
        """Notify some of those who wait."""
        self._core.notify(n)

    def notify_all(self) -> None:
        """Notify all who wait."""
        self._core.notify_all()

    def __repr__(self) -> str:
        """Show how many wait."""
        return f"<drover.Condition({self._core.waiting()} waiting)>"


class Event(SharedHandle):
    """A flag that others wait for."""

    _opened_as = _core.Event

    def __init__(self, *, ctx: object = None) -> None:
        """Make one that is clear."""
        del ctx
        self._core = _core.Event.make(_session.current())

    def is_set(self) -> bool:
        """Tell whether it is set."""
        return self._core.is_set()

    def set(self) -> None:
        """Set it and wake everybody who waits."""
        self._core.set()

    def clear(self) -> None:
        """Clear it."""
        self._core.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; tell whether it was in time."""
        return self._core.wait(_timeout(True, timeout))

    def __repr__(self) -> str:
        """Show whether it is set."""
        return f"<Event at {id(self):#x} {'set' if self.is_set() else 'unset'}>"


class Barrier:
    """Lets a number of threads pass when all have come. The death of one breaks it, so that nobody waits in vain."""

    def __init__(
        self,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: float | None = None,
        *,
        ctx: object = None,
    ) -> None:
        """Make one; the action is run by one of them when all have come, before any passes."""
        del ctx
        self._gate = _Gate(parties)
        # Who ran the action lets the others pass at a second gate.
        self._second = _Gate(parties) if action is not None else None
        self._action = action
        self._timeout = timeout

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all have come; give a number that is different for each of them."""
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
        """Break it: whoever waits, or comes, gets BrokenBarrierError."""
        for gate in (self._gate, self._second):
            if gate is not None:
                gate.abort()

    def reset(self) -> None:
        """Make it whole and empty again; whoever waits gets BrokenBarrierError."""
        for gate in (self._second, self._gate):
            if gate is not None:
                gate.reset()

    @property
    def parties(self) -> int:
        """How many must come."""
        return self._gate.parties()

    @property
    def n_waiting(self) -> int:
        """How many have come."""
        return self._gate.waiting()

    @property
    def broken(self) -> bool:
        """Whether it is broken."""
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
