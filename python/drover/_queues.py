"""Queues with the behaviour of multiprocessing's, on rings in shared memory."""

from __future__ import annotations

import collections
import queue
import threading
import time
from typing import Any

from drover import _core, _objects, _session
from drover._errors import Error, PeerLost
from drover._last_calls import call_at_exit
from drover._queue_reader import QueueReader
from drover._synchronize import Condition, Semaphore, SharedHandle

__all__ = ["JoinableQueue", "Queue", "SimpleQueue"]

# Messages in the ring of a queue without a bound. What does not fit waits in the process that put it.
_UNBOUNDED = 4096
_MOST = 1 << 20
_BYTES = 64 << 20
_TIMED_OUT, _CLOSED, _PEER_LOST = 1, 2, 3
_PAUSE = 0.02
_SLICE = 0.1  # seconds after which a thread looks whether it is to stop


def _lost(what: str) -> PeerLost:
    return PeerLost(
        f"{what}: every other process that had this queue has ended or closed it, so this would wait for ever",
        "start those who use the other end first and see why they ended; with a timeout it waits for new ones",
    )


def _closed() -> PeerLost:
    return PeerLost(
        "the queue was closed for all by another program of the session, and takes and gives nothing any more",
        "see who calls close of the C++ class, or make another queue",
    )


class _Feeder:
    """What was put into a queue without a bound while its ring was full: a thread passes it on, in order."""

    def __init__(self, core: _core.Queue) -> None:
        self._core = core
        self._items: collections.deque[tuple[bytes, Any]] = collections.deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_alone = False
        self._is_joined_at_exit = True
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._items)

    def add(self, payload: bytes, tensors: Any) -> None:
        with self._changed:
            self._items.append((payload, tensors))
            if self._thread is None:
                call_at_exit(self)
                self._thread = threading.Thread(target=self._run, name="drover queue feeder", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopped and not self._pass_on():
                pass
        except Error:
            self._give_up()  # the session is over, and nobody is there to take it
            raise

    def _pass_on(self) -> bool:
        """Pass the first on; tell whether it was the last."""
        result = self._core.put(*self._items[0], _SLICE)
        self._is_alone = result == _PEER_LOST
        if self._is_alone:
            time.sleep(_PAUSE)  # somebody may still come
        if result in (_TIMED_OUT, _PEER_LOST):
            return False
        with self._changed:
            self._items.popleft()
            return self._is_over()

    def _give_up(self) -> None:
        with self._changed:
            self._items.clear()
            self._is_over()

    def _is_over(self) -> bool:
        if self._items:
            return False
        self._thread = None
        self._changed.notify_all()
        return True

    def join(self) -> None:
        """Wait until all is passed on, or nobody is left to take it."""
        with self._changed:
            while self._thread is not None and not self._is_alone:
                self._changed.wait(0.2)

    def cancel_join(self) -> None:
        self._is_joined_at_exit = False

    def end_at_exit(self) -> None:
        # Children are joined by now. Where the session ends with this process, nobody is left to take anything.
        if self._is_joined_at_exit and not _session.ends_with_this_process():
            self.join()
        self._is_stopped = True
        thread = self._thread
        if thread is not None:
            thread.join()


class Queue(SharedHandle):
    """A queue between processes, first in first out, whose messages survive the death of whoever put them."""

    _opened_as = _core.Queue

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        """Make one that holds so many objects; any number if it is 0 or less."""
        del ctx
        self._maxsize = max(0, maxsize)
        capacity = min(self._maxsize, _MOST) or _UNBOUNDED
        self._set_up(_core.Queue(_session.current(), capacity, _BYTES))

    def _set_up(self, core: _core.Queue) -> None:
        self._core = core
        self._feeder = None if self._maxsize else _Feeder(core)
        self._is_closed = False
        self._is_writer_closed = False
        self._reader = QueueReader(core)
        self._rlock = threading.Lock()  # what multiprocessing's own pools expect; get needs none
        self._turns: Any = None  # of coroutines

    def __getstate__(self) -> Any:
        """Give what others open it by."""
        return super().__getstate__(), self._maxsize

    def __setstate__(self, state: Any) -> None:
        """Open it here."""
        handle, self._maxsize = state
        self._set_up(_core.Queue.open(_session.current(), handle))

    @property
    def _writer(self) -> _Writer:
        return _Writer(self)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"Queue {self!r} is closed")

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put an object in. What cannot be sent raises here and now."""
        self._check_open()
        if self._is_writer_closed:
            raise OSError("handle is closed")  # as multiprocessing has it
        payload, tensors = _objects.dumps(obj)
        try:
            self._put(payload, tensors, block, timeout)
        except BaseException:
            _objects.unsent(obj)
            raise

    def _put(self, payload: bytes, tensors: Any, block: bool, timeout: float | None) -> None:
        if self._feeder is not None:
            result = _TIMED_OUT if len(self._feeder) else self._core.put(payload, tensors, 0.0)
            if result == _CLOSED:
                raise _closed()
            if result in (_TIMED_OUT, _PEER_LOST):
                self._feeder.add(payload, tensors)
            return
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            result = self._core.put(payload, tensors, _seconds(block, timeout))
            if result == _PEER_LOST and block:
                if end is None:
                    raise _lost("the queue is full")
                if (timeout := end - time.monotonic()) > 0:
                    time.sleep(min(_PAUSE, timeout))
                    continue
            if result == _CLOSED:
                raise _closed()
            if result in (_TIMED_OUT, _PEER_LOST):
                raise queue.Full
            return

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest object out."""
        self._check_open()
        if self._reader.is_used:
            if (got := self._reader.take(_seconds(block, timeout))) is None:
                raise queue.Empty
            return _objects.loads(*got)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            got = self._core.get(_seconds(block, timeout))
            if type(got) is tuple:
                return _objects.loads(*got)
            if got == _CLOSED:
                raise _closed()
            if got == _PEER_LOST and block:
                if end is None:
                    raise _lost("the queue is empty")
                if (timeout := end - time.monotonic()) > 0:
                    time.sleep(min(_PAUSE, timeout))
                    continue
            raise queue.Empty

    def put_nowait(self, obj: Any) -> None:
        """Put an object in if there is room."""
        self.put(obj, False)

    def get_nowait(self) -> Any:
        """Take an object out if there is one."""
        return self.get(False)

    async def get_async(self) -> Any:
        """Take the oldest object out, in asyncio. Coroutines of a loop get theirs in the order in which they asked.

        One that is cancelled, by `asyncio.timeout` say, leaves everything in the queue.
        """
        coroutines = self._coroutines()
        return await coroutines.get(self._turns, self._get_or_raise, self._fileno_now)

    async def put_async(self, obj: Any) -> None:
        """Put an object in, in asyncio, as soon as there is room. What cannot be sent raises here and now.

        One that is cancelled has put nothing.
        """
        self._check_open()
        payload, tensors = _objects.dumps(obj)
        coroutines = self._coroutines()
        await coroutines.put(self._turns, lambda: self._put(payload, tensors, False, None))

    def _coroutines(self) -> Any:
        from drover import _async_queues  # noqa: PLC0415 (imports asyncio, which others do without)

        self._turns = self._turns or _async_queues.Turns()
        return _async_queues

    def _get_or_raise(self) -> Any:
        """Get what is there; Empty if there may be something later, else what tells that there never will be."""
        self._check_open()
        if self._reader.is_used:
            return self.get(False)
        got = self._core.get(0.0)
        if type(got) is tuple:
            return _objects.loads(*got)
        if got == _CLOSED:
            raise _closed()
        if got == _PEER_LOST:
            raise _lost("the queue is empty")
        raise queue.Empty

    def _fileno_now(self) -> int:
        return self._reader.fileno() if self._reader.is_used else self._core.fileno()

    def qsize(self) -> int:
        """Give the number of objects in it, roughly."""
        return self._core.size() + len(self._reader) + (len(self._feeder) if self._feeder is not None else 0)

    def empty(self) -> bool:
        """Tell whether it seems to be empty."""
        is_empty = self.qsize() == 0
        if self._is_closed and not is_empty:
            raise OSError(f"{self!r} is closed")  # as multiprocessing has it: what is in it cannot be had
        return is_empty

    def full(self) -> bool:
        """Tell whether it seems to be full."""
        return bool(self._maxsize) and self._core.size() >= self._maxsize

    def close(self) -> None:
        """Say that this process is done with it; others go on."""
        self._is_closed = True
        self._reader.close()

    def join_thread(self) -> None:
        """Wait until all that was put is on its way. Only after close."""
        if not self._is_closed:
            raise ValueError(f"Queue {self!r} not closed")
        if self._feeder is not None:
            self._feeder.join()

    def cancel_join_thread(self) -> None:
        """Let what is not on its way when this process ends be lost."""
        if self._feeder is not None:
            self._feeder.cancel_join()

    def fileno(self) -> int:
        """Give a descriptor that is readable when there may be something to get; for event loops."""
        return self._core.fileno()

    def __repr__(self) -> str:
        """Show how full it is."""
        return f"<drover.{type(self).__name__}({self._core.size()} of {self._maxsize or 'any number'})>"


def _seconds(block: bool, timeout: float | None) -> float | None:
    if not block:
        return 0.0
    return None if timeout is None else max(0.0, timeout)


class _Writer:
    """The end of a queue into which is written, with the words of a connection."""

    def __init__(self, line: Queue) -> None:
        self._line = line

    @property
    def closed(self) -> bool:
        return self._line._is_closed or self._line._is_writer_closed

    def close(self) -> None:
        """Say that this process puts nothing more."""
        self._line._is_writer_closed = True

    def send(self, obj: Any) -> None:
        self._line.put(obj)


class JoinableQueue(Queue):
    """A queue that knows how many of its objects are not yet dealt with."""

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        """Make one."""
        super().__init__(maxsize, ctx=ctx)
        self._unfinished = Semaphore(0)
        self._condition = Condition()

    def __getstate__(self) -> Any:
        """Give what others open it by."""
        return super().__getstate__(), self._unfinished, self._condition

    def __setstate__(self, state: Any) -> None:
        """Open it here."""
        own, self._unfinished, self._condition = state
        super().__setstate__(own)

    def _put(self, payload: bytes, tensors: Any, block: bool, timeout: float | None) -> None:
        # Counted before it can be taken, so that who takes it finds it counted.
        self._unfinished.release()
        try:
            super()._put(payload, tensors, block, timeout)
        except BaseException:
            self.task_done()
            raise

    def task_done(self) -> None:
        """Say that one object that was taken out is dealt with."""
        with self._condition:
            if not self._unfinished.acquire(False):
                raise ValueError("task_done() called too many times")
            if self._unfinished.get_value() == 0:
                self._condition.notify_all()

    def join(self) -> None:
        """Wait until all objects are dealt with."""
        with self._condition:
            while self._unfinished.get_value() != 0:
                self._condition.wait()


class SimpleQueue(Queue):
    """A queue with the fewest words: get, put, empty, close."""

    def __init__(self, *, ctx: object = None) -> None:
        """Make one without a bound."""
        super().__init__(0, ctx=ctx)

    def empty(self) -> bool:
        """Tell whether it seems to be empty."""
        if self._is_closed:
            raise OSError(f"{self!r} is closed")
        return super().empty()
