"""The module `multiprocessing.synchronize` under drover's name, with drover's locks."""

from __future__ import annotations

from drover._synchronize import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore"]
