"""Queues that behave like multiprocessing's, on rings in shared memory."""

from __future__ import annotations

import collections
import pickle
import queue
import threading
import time
from typing import Any, Generic

from drover import _core, _objects, _session
from drover._errors import Error, PeerLost
from drover._exit_hooks import call_at_exit
from drover._queue_reader import QueueReader
from drover._synchronize import Condition, Semaphore, SharedHandle
from drover._types import Item

__all__ = ["JoinableQueue", "Queue", "SimpleQueue"]

_UNBOUNDED = 4096  # messages in the ring of an unbounded queue; more wait in the process that put them
_MOST = 1 << 20
_BYTES = 64 << 20
_PutResult, _GetResult = _core.PutResult, _core.GetResult
_PUT = _PutResult.put
_PAUSE = 0.02
_PATIENCE = 0.002  # seconds in which a reader empties most of a full ring
_SLICE = 0.1  # seconds between a thread's checks whether it is to stop


def _lost(what: str) -> PeerLost:
    return PeerLost(
        f"{what}, and every other process that had this queue has ended or closed it: waiting would never end",
        "check why those processes ended, or start them first; with a timeout the call waits for new ones to open it",
    )


def _closed() -> PeerLost:
    return PeerLost(
        "another program of the session closed the queue for all processes",
        "check which program calls Queue::close of the C++ library, or create another queue",
    )


class _Feeder:
    """The overflow of an unbounded queue whose ring is full: a thread moves it into the ring, in order."""

    def __init__(self, core: _core.Queue) -> None:
        self._core = core
        self.items: collections.deque[tuple[bytes, Any]] = collections.deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_alone = False
        self._is_joined_at_exit = True
        self._is_stopped = False
        self._next_wait = 0.0

    def __len__(self) -> int:
        return len(self.items)

    def wait_for_reader(self) -> bool:
        """Give a reader a moment to empty the ring, which costs less than the thread; return whether it may have.

        At most half of the time, so that those who put need not wait for slow readers.
        """
        if self.items or time.monotonic() < self._next_wait:
            return False
        time.sleep(_PATIENCE)
        self._next_wait = time.monotonic() + _PATIENCE
        return not self.items

    def add(self, payload: bytes, tensors: Any) -> None:
        with self._changed:
            self.items.append((payload, tensors))
            if self._thread is None:
                call_at_exit(self)
                self._thread = threading.Thread(target=self._run, name="drover queue feeder", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopped and not self._pass_on():
                pass
        except Error:
            self._give_up()  # the session is over: nobody can take the messages
            raise

    def _pass_on(self) -> bool:
        """Move the first message; return whether it was the last."""
        result = self._core.put(*self.items[0], _SLICE)
        self._is_alone = result is _PutResult.peer_lost
        if self._is_alone:
            time.sleep(_PAUSE)  # a process may still open the queue
        if result in (_PutResult.timed_out, _PutResult.peer_lost):
            return False
        with self._changed:
            self.items.popleft()
            return self._is_over()

    def _give_up(self) -> None:
        with self._changed:
            self.items.clear()
            self._is_over()

    def _is_over(self) -> bool:
        if self.items:
            return False
        self._thread = None
        self._changed.notify_all()
        return True

    def join(self) -> None:
        """Wait until all messages are in the ring, or no process is left to take them."""
        with self._changed:
            while self._thread is not None and not self._is_alone:
                self._changed.wait(0.2)

    def cancel_join(self) -> None:
        self._is_joined_at_exit = False

    def end_at_exit(self) -> None:
        # Children are joined by now. If the session ends with this process, nobody is left to take anything.
        if self._is_joined_at_exit and not _session.ends_with_this_process():
            self.join()
        self._is_stopped = True
        thread = self._thread
        if thread is not None:
            thread.join()


class Queue(SharedHandle, Generic[Item]):
    """A first-in, first-out queue between processes, with the interface of `multiprocessing.Queue`.

    Any picklable object can be sent; arrays in shared memory and on devices are not copied. Messages survive the
    death of the process that put them. `maxsize` is the number of objects that fit; 0 or less means no limit.

    >>> import drover
    >>> queue = drover.Queue()
    >>> queue.put({"step": 1})
    >>> queue.get()
    {'step': 1}
    """

    _opened_as = _core.Queue

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        """Create a queue for at most `maxsize` objects, or any number if that is 0 or less."""
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
        self._rlock = threading.Lock()  # multiprocessing's own pools expect it; get needs none
        self._turns: Any = None  # waiting lines of coroutines

    def __getstate__(self) -> Any:
        """Return the handle by which another process opens the queue."""
        return super().__getstate__(), self._maxsize

    def __setstate__(self, state: Any) -> None:
        """Open the queue in this process."""
        handle, self._maxsize = state
        self._set_up(_core.Queue.open(_session.current(), handle))

    @property
    def _writer(self) -> _Writer:
        return _Writer(self)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"Queue {self!r} is closed")

    def put(self, obj: Item, block: bool = True, timeout: float | None = None) -> None:
        """Put an object into the queue; wait for room if `block`, at most `timeout` seconds.

        Raises queue.Full if there is no room in time, ValueError after `close`, and the error of pickling if the
        object cannot be sent. Without a timeout, raises PeerLost if every process that could make room has ended.
        """
        if self._is_closed or self._is_writer_closed:  # calls cost a good part of a put or get
            self._check_open()
            raise OSError("handle is closed")  # multiprocessing's message
        payload, tensors = _objects.dumps(obj)
        try:
            self._put(payload, tensors, block, timeout)
        except BaseException:
            _objects.unsent(payload)
            raise

    def _put(self, payload: bytes, tensors: Any, block: bool, timeout: float | None) -> None:
        if self._feeder is not None:
            result = _PutResult.timed_out if self._feeder.items else self._core.put(payload, tensors, 0.0)
            if result is _PutResult.timed_out and block and self._feeder.wait_for_reader():
                result = self._core.put(payload, tensors, 0.0)
            if result is _PUT:
                return
            if result is _PutResult.closed:
                raise _closed()
            self._feeder.add(payload, tensors)
            return
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            result = self._core.put(payload, tensors, _seconds(block, timeout))
            if result is _PUT:
                return
            if result is _PutResult.closed:
                raise _closed()
            if result is _PutResult.peer_lost and block:
                if end is None:
                    raise _lost("the queue is full")
                if (timeout := end - time.monotonic()) > 0:
                    time.sleep(min(_PAUSE, timeout))
                    continue
            raise queue.Full

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Take the oldest object out of the queue; wait for one if `block`, at most `timeout` seconds.

        Raises queue.Empty if there is none in time, and ValueError after `close`. Without a timeout, raises PeerLost
        if every process that could put an object has ended.
        """
        if self._is_closed:
            self._check_open()
        if self._reader.is_used:
            if (got := self._reader.take(_seconds(block, timeout))) is None:
                raise queue.Empty
            return _objects.loads(*got)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            got = self._core.get(None if block and timeout is None else _seconds(block, timeout))
            if type(got) is tuple:
                return _objects.loads(*got) if got[1] else pickle.loads(got[0])
            if got is _GetResult.closed:
                raise _closed()
            if got is _GetResult.peer_lost and block:
                if end is None:
                    raise _lost("the queue is empty")
                if (timeout := end - time.monotonic()) > 0:
                    time.sleep(min(_PAUSE, timeout))
                    continue
            raise queue.Empty

    def put_nowait(self, obj: Item) -> None:
        """Put an object into the queue without waiting; raises queue.Full if there is no room."""
        self.put(obj, False)

    def get_nowait(self) -> Item:
        """Take the oldest object out of the queue without waiting; raises queue.Empty if there is none."""
        return self.get(False)

    async def get_async(self) -> Item:
        """Take the oldest object out of the queue, in asyncio. Coroutines of a loop are served in order.

        Cancelling the coroutine, for example by `asyncio.timeout`, loses no object.
        """
        coroutines = self._coroutines()
        return await coroutines.get(self._turns, self._get_or_raise, self._fileno_now)

    async def put_async(self, obj: Item) -> None:
        """Put an object into the queue, in asyncio, once there is room.

        Raises the error of pickling at once if the object cannot be sent. A coroutine that is cancelled has put
        nothing.
        """
        self._check_open()
        payload, tensors = _objects.dumps(obj)
        coroutines = self._coroutines()
        try:
            await coroutines.put(self._turns, lambda: self._put(payload, tensors, False, None))
        except BaseException:
            _objects.unsent(payload)
            raise

    def _coroutines(self) -> Any:
        from drover import _async_queues  # noqa: PLC0415 (imports asyncio, which few programs need)

        self._turns = self._turns or _async_queues.Turns()
        return _async_queues

    def _get_or_raise(self) -> Any:
        """Get an object without waiting; raise Empty only if there may be one later."""
        self._check_open()
        if self._reader.is_used:
            return self.get(False)
        got = self._core.get(0.0)
        if type(got) is tuple:
            return _objects.loads(*got)
        if got is _GetResult.closed:
            raise _closed()
        if got is _GetResult.peer_lost:
            raise _lost("the queue is empty")
        raise queue.Empty

    def _fileno_now(self) -> int:
        return self._reader.fileno() if self._reader.is_used else self._core.fileno()

    def qsize(self) -> int:
        """Return the approximate number of objects in the queue."""
        return self._core.size() + len(self._reader) + (len(self._feeder) if self._feeder is not None else 0)

    def empty(self) -> bool:
        """Return whether the queue seems to be empty."""
        is_empty = self.qsize() == 0
        if self._is_closed and not is_empty:
            raise OSError(f"{self!r} is closed")  # as in multiprocessing: a closed queue cannot be read
        return is_empty

    def full(self) -> bool:
        """Return whether the queue seems to be full."""
        return bool(self._maxsize) and self._core.size() >= self._maxsize

    def close(self) -> None:
        """Close the queue in this process; other processes are not affected."""
        self._is_closed = True
        self._reader.close()

    def join_thread(self) -> None:
        """Wait until all objects put by this process are in shared memory. Raises ValueError before `close`."""
        if not self._is_closed:
            raise ValueError(f"Queue {self!r} not closed")
        if self._feeder is not None:
            self._feeder.join()

    def cancel_join_thread(self) -> None:
        """Do not wait at exit for objects that are not in shared memory yet; they are lost."""
        if self._feeder is not None:
            self._feeder.cancel_join()

    def fileno(self) -> int:
        """Return a descriptor for event loops, readable when there may be an object to get."""
        return self._core.fileno()

    def __repr__(self) -> str:
        """Show the number of objects."""
        return f"<drover.{type(self).__name__}({self._core.size()} of {self._maxsize or 'any number'})>"


def _seconds(block: bool, timeout: float | None) -> float | None:
    if not block:
        return 0.0
    return None if timeout is None else max(0.0, timeout)


class _Writer:
    """The writing end of a queue as a connection."""

    def __init__(self, target: Queue) -> None:
        self._target = target

    @property
    def closed(self) -> bool:
        return self._target._is_closed or self._target._is_writer_closed

    def close(self) -> None:
        """Refuse further puts by this process."""
        self._target._is_writer_closed = True

    def send(self, obj: Any) -> None:
        self._target.put(obj)


class JoinableQueue(Queue[Item]):
    """A queue that counts unfinished objects: each `put` adds one, each `task_done` removes one."""

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        """Create a queue; see `Queue`."""
        super().__init__(maxsize, ctx=ctx)
        self._unfinished = Semaphore(0)
        self._condition = Condition()

    def __getstate__(self) -> Any:
        """Return the handles by which another process opens the queue."""
        return super().__getstate__(), self._unfinished, self._condition

    def __setstate__(self, state: Any) -> None:
        """Open the queue in this process."""
        own, self._unfinished, self._condition = state
        super().__setstate__(own)

    def _put(self, payload: bytes, tensors: Any, block: bool, timeout: float | None) -> None:
        # Counted before the put: the object may be taken and finished right after it.
        self._unfinished.release()
        try:
            super()._put(payload, tensors, block, timeout)
        except BaseException:
            self.task_done()
            raise

    def task_done(self) -> None:
        """Mark one object that was taken out as finished. Raises ValueError if there were not that many."""
        with self._condition:
            if not self._unfinished.acquire(False):
                raise ValueError("task_done() called too many times")
            if self._unfinished.get_value() == 0:
                self._condition.notify_all()

    def join(self) -> None:
        """Wait until all objects are finished. Raises PeerLost if no process is left that could finish them."""
        with self._condition:
            while self._unfinished.get_value() != 0:
                self._wait_for_change()

    def _wait_for_change(self) -> None:
        try:
            self._condition.wait()
        except PeerLost as error:
            count = self._unfinished.get_value()
            raise PeerLost(f"{count} objects of the queue are unfinished: {error.message}", error.remedy) from None


class SimpleQueue(Queue[Item]):
    """An unbounded queue. multiprocessing's SimpleQueue only has get, put, empty and close."""

    def __init__(self, *, ctx: object = None) -> None:
        """Create an unbounded queue."""
        super().__init__(0, ctx=ctx)

    def empty(self) -> bool:
        """Return whether the queue seems to be empty."""
        if self._is_closed:
            raise OSError(f"{self!r} is closed")
        return super().empty()
