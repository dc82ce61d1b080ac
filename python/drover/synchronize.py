"""What programs take from `multiprocessing.synchronize`: locks and their like."""

from __future__ import annotations

from drover._synchronize import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore"]
