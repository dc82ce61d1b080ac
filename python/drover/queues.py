"""What programs take from `multiprocessing.queues`: the queues, and what they raise when empty or full."""

from __future__ import annotations

from queue import Empty, Full

from drover._queues import JoinableQueue, Queue, SimpleQueue

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]
