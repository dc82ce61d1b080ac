"""A queue with the words of a connection, for those who look behind multiprocessing's queues."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import select
import threading
from typing import Any

from drover import _core, _errors, _objects
from drover._last_calls import call_at_exit

__all__ = ["QueueReader"]

_SLICE = 0.1  # seconds after which the thread looks whether it is still needed


class _Taken:
    """What the thread has taken out of the queue, and a descriptor that counts it."""

    def __init__(self) -> None:
        self.items: collections.deque[tuple[Any, Any]] = collections.deque()
        self.count = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self.is_wanted = True
        self.thread: threading.Thread | None = None

    def end_at_exit(self) -> None:
        self.is_wanted = False
        if self.thread is not None:
            self.thread.join()

    def __del__(self) -> None:
        os.close(self.count)


class QueueReader:
    """The end of a queue from which is read, whose descriptor is readable exactly when `recv` need not wait.

    A queue's own descriptor may be readable for nothing. So a thread takes what comes, from the first use on: this
    process is to be the only one that reads. For concurrent.futures, whose executors wait for `_reader`.
    """

    def __init__(self, core: _core.Queue) -> None:
        """Make one for a queue; nothing is taken yet."""
        self._core = core
        self._taken: _Taken | None = None
        self.closed = False

    def __del__(self) -> None:
        """Let the thread end."""
        self.close()

    def __len__(self) -> int:
        """Give the number of objects that were taken out and wait here."""
        return len(self._taken.items) if self._taken is not None else 0

    @property
    def is_used(self) -> bool:
        """Whether what is put into the queue is to be had from here only."""
        return self._taken is not None

    def close(self) -> None:
        """Take nothing any more."""
        self.closed = True
        if self._taken is not None:
            self._taken.is_wanted = False

    def fileno(self) -> int:
        """Give a descriptor to wait for."""
        if self._taken is None:
            self._taken = taken = _Taken()
            taken.thread = threading.Thread(target=_take, args=(self._core, taken), name="drover reader", daemon=True)
            taken.thread.start()
            call_at_exit(taken)
        return self._taken.count

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Wait until there is something; tell whether there is."""
        waiting = select.poll()  # unlike select it knows descriptors beyond 1023
        waiting.register(self.fileno(), select.POLLIN)
        return bool(waiting.poll(None if timeout is None else math.ceil(timeout * 1e3)))

    def take(self, timeout: float | None) -> tuple[Any, Any] | None:
        """Take a message; nothing if there is none in time."""
        while self.poll(timeout):
            with contextlib.suppress(BlockingIOError):  # another thread was first
                os.eventfd_read(self.fileno())
                return self._taken.items.popleft()
        return None

    def recv(self) -> Any:
        """Take the oldest object out."""
        got = self.take(None)
        return _objects.loads(*got)


def _take(core: _core.Queue, taken: _Taken) -> None:
    with contextlib.suppress(_errors.PeerLost):  # the session is over
        while taken.is_wanted:
            got = core.get(_SLICE)
            if type(got) is tuple:
                taken.items.append(got)
                os.eventfd_write(taken.count, 1)
            elif got != 1:  # nobody is left who could put; somebody may come
                threading.Event().wait(_SLICE)
