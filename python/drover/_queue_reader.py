"""The reading end of a queue as a connection, for code that uses the `_reader` of multiprocessing's queues."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import select
import threading
from typing import Any

from drover import _core, _errors, _objects
from drover._exit_hooks import call_at_exit

__all__ = ["QueueReader"]

_SLICE = 0.1  # seconds between the thread's checks whether it is still needed
_GOT_NOTHING_YET = _core.GetResult.timed_out


def poll_milliseconds(timeout: float) -> int:
    """Return the timeout for select.poll: rounded up, and -1, for ever, if it is longer than poll can wait."""
    return -1 if timeout * 1e3 >= 2**31 else max(0, math.ceil(timeout * 1e3))


class _Taken:
    """The messages that the thread has taken out of the queue, and an eventfd that counts them."""

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
    """The reading end of a queue. Its descriptor is readable exactly when `recv` does not block.

    The queue's own descriptor can be readable without a message. So from the first use on, a thread takes all
    messages, and this process must be the only reader. concurrent.futures needs this: its executors wait for
    `_reader`.
    """

    def __init__(self, core: _core.Queue) -> None:
        """Wrap a queue; takes no messages yet."""
        self._core = core
        self._taken: _Taken | None = None
        self._start = threading.Lock()  # two readers would each take messages that the other waits for
        self.closed = False
        self.is_used = False  # whether the thread takes all messages, so that they can only be received here

    def __del__(self) -> None:
        """Stop the thread."""
        self.close()

    def __len__(self) -> int:
        """Return the number of messages that the thread has taken."""
        return len(self._taken.items) if self._taken is not None else 0

    def close(self) -> None:
        """Stop taking messages."""
        self.closed = True
        if self._taken is not None:
            self._taken.is_wanted = False

    def fileno(self) -> int:
        """Return a descriptor to wait for."""
        with self._start:
            if self._taken is None:
                taken = _Taken()
                taken.thread = threading.Thread(
                    target=_take, args=(self._core, taken), name="drover reader", daemon=True
                )
                taken.thread.start()
                call_at_exit(taken)
                self._taken = taken
                self.is_used = True
            return self._taken.count

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Wait for a message; return whether there is one."""
        waiting = select.poll()  # unlike select, this works beyond descriptor 1023
        waiting.register(self.fileno(), select.POLLIN)
        return bool(waiting.poll(None if timeout is None else poll_milliseconds(timeout)))

    def take(self, timeout: float | None) -> tuple[Any, Any] | None:
        """Take a message; return None at the timeout."""
        while self.poll(timeout):
            with contextlib.suppress(BlockingIOError):  # another thread took it
                os.eventfd_read(self.fileno())
                return self._taken.items.popleft()
        return None

    def recv(self) -> Any:
        """Receive the oldest object; blocks until there is one."""
        got = self.take(None)
        return _objects.loads(*got)


def _take(core: _core.Queue, taken: _Taken) -> None:
    with contextlib.suppress(_errors.PeerLost):  # the session is over
        while taken.is_wanted:
            got = core.get(_SLICE)
            if type(got) is tuple:
                taken.items.append(got)
                os.eventfd_write(taken.count, 1)
            elif got is not _GOT_NOTHING_YET:  # no process is left to put, but one may still open the queue
                threading.Event().wait(_SLICE)
