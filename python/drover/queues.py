"""The module `multiprocessing.queues` under drover's name, with drover's queues."""

from __future__ import annotations

from queue import Empty, Full

from drover._queues import JoinableQueue, Queue, SimpleQueue

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]
