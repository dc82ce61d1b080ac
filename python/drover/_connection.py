"""Pipes that behave like multiprocessing's: a socket for small messages, and shared memory for large ones."""

from __future__ import annotations

import errno
import io
import os
import pickle
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection, context
from typing import Any

from drover import _core, _objects, _session
from drover._descriptors import ticket_for
from drover._errors import Corrupt
from drover._queue_reader import poll_milliseconds
from drover._synchronize import Lock

__all__ = ["Pipe", "PipeConnection"]

# A packet of the socket arrives whole or not at all, whichever process is killed. Its last byte is its kind: the
# message itself, or an announcement that an object or bytes are in the lane. Unpickling ignores the extra byte.
_SMALL, _OBJECT, _BYTES = b"\0", b"\1", b"\2"
_INLINE = 16 * 1024
_STAMP = struct.Struct("<QQ")
_CAPACITY = 16  # messages in a lane; `send` blocks beyond that
_RING_BYTES = 16 << 20
_SLICE = 0.1  # seconds between checks for a reader while a sender waits for room
_PATIENCE = 30.0  # seconds to wait for an announced message, which is there unless another process took it
_GOT_NOTHING_YET = _core.GetResult.timed_out
_PUT = _core.PutResult.put

_making = threading.Lock()


class _Lane:
    """One direction of a pipe for messages that the socket only announces: a queue, created on first use.

    A writer holds the lock from the put to the announcement, so messages and announcements have the same order. A
    message in front of an announced one was never announced: its sender was killed or interrupted in between.
    """

    def __init__(self) -> None:
        self._parts: tuple[_core.Queue, Lock] | None = None
        self._count = 0
        self._id = 0

    def parts(self) -> tuple[_core.Queue, Lock]:
        if self._parts is None:
            with _making:
                if self._parts is None:
                    self._parts = _core.Queue(_session.current(), _CAPACITY, _RING_BYTES), Lock()
        return self._parts

    def stamp(self) -> bytes:
        """Return an identifier that is unique in this lane. Requires the lock."""
        if not self._id:
            self._id = int.from_bytes(os.urandom(8), "little") | 1
        self._count += 1
        return _STAMP.pack(self._id, self._count)

    def take(self, stamp: bytes) -> tuple[Any, Sequence[_core.Tensor]]:
        """Take the announced message out of the queue."""
        queue, _ = self.parts()
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            got = queue.get(_SLICE)
            if type(got) is tuple:
                if bytes(memoryview(got[0])[-_STAMP.size :]) == stamp:
                    return got
            elif got is not _GOT_NOTHING_YET:
                time.sleep(_SLICE)
        raise Corrupt(
            "a message announced on a connection is missing: another process that holds the same end took it",
            "receive from an end in one process at a time, or guard it with a lock that the processes share",
        )

    def __getstate__(self) -> Any:
        """Return the handle and lock, and keep the queue alive until a child that is being started has opened it."""
        queue, lock = self.parts()
        keep = getattr(context.get_spawning_popen(), "keep_until_joined", None)
        if keep is not None:
            keep(self)
        return queue.handle, lock

    def __setstate__(self, state: Any) -> None:
        """Open the lane in this process."""
        handle, lock = state
        self.__init__()
        self._parts = _core.Queue.open(_session.current(), handle), lock


class PipeConnection(connection.Connection):
    """One end of a pipe. A message survives the death of its sender and is received whole or not at all.

    Objects are sent as through a queue. Only one process at a time may receive from an end;
    any number may send to it.
    """

    def __init__(
        self, handle: int, incoming: _Lane | None, outgoing: _Lane | None, readable: bool, writable: bool
    ) -> None:
        """Take ownership of one end of the socket; called by `Pipe`."""
        super().__init__(handle, readable, writable)
        self._incoming = incoming
        self._outgoing = outgoing
        self._reading = threading.Lock()

    def _close(self, _close: Any = os.close) -> None:
        self._incoming = self._outgoing = None
        _close(self._handle)

    def send(self, obj: Any) -> None:
        """Send an object; blocks while there is no room.

        Raises the error of pickling at once if the object cannot be sent, and BrokenPipeError if the other end is
        closed everywhere.
        """
        self._check_closed()
        self._check_writable()
        payload, tensors = _objects.dumps(obj)
        try:
            if not tensors and len(payload) <= _INLINE:
                self._write(payload + _SMALL)
            else:
                self._put(payload, tensors, _OBJECT)
        except BaseException:
            _objects.unsent(payload)
            raise

    def recv(self) -> Any:
        """Receive an object; blocks until there is one.

        Raises EOFError once everything sent has been received and no process can send more.
        """
        self._check_closed()
        self._check_readable()
        payload, tensors, kind = self._take()
        return pickle.loads(tensors[0]) if kind == _BYTES[0] else _objects.loads(payload, tensors)

    def _send_bytes(self, buf: memoryview) -> None:
        if len(buf) <= _INLINE:
            self._write(b"".join((buf, _SMALL)))
        else:
            self._put(b"", [_core.copied(_session.current(), buf)], _BYTES)

    def _recv_bytes(self, maxsize: int | None = None) -> io.BytesIO | None:
        payload, tensors, kind = self._take()
        if kind == _BYTES[0]:
            whole = bytes(memoryview(tensors[0]))
        elif tensors:  # an object with arrays, received as bytes: convert it to a plain pickle
            whole = pickle.dumps(_objects.loads(payload, tensors), _objects.PROTOCOL)
        else:
            whole = bytes(memoryview(payload)[: -1 if kind == _SMALL[0] else -_STAMP.size])
        if maxsize is not None and len(whole) > maxsize:
            return None
        result = io.BytesIO(whole)
        result.seek(0, io.SEEK_END)
        return result

    def _poll(self, timeout: float | None) -> bool:
        return bool(_waited(self._handle, select.POLLIN, timeout))

    def _take(self) -> tuple[Any, Sequence[_core.Tensor], int]:
        """Wait for a message; return its payload, tensors and kind."""
        with self._reading:  # the thread that reads an announcement also takes its message
            packet = self._read()
            if packet[-1] == _SMALL[0]:
                return packet, (), _SMALL[0]
            if self._incoming is None or len(packet) != _STAMP.size + 1:
                raise OSError(errno.EBADMSG, "invalid packet: the connection's descriptor was written to directly")
            return *self._incoming.take(packet[: _STAMP.size]), packet[-1]

    def _read(self) -> bytes:
        while True:
            try:
                packet = os.read(self._handle, _INLINE + 1)
            except ConnectionResetError:  # reported once if the peer left data unread; our own data is still there
                continue
            if packet:
                return packet
            self._incoming = None  # frees messages that were never announced
            raise EOFError

    def _put(self, payload: bytes, tensors: Sequence[_core.Tensor], kind: bytes) -> None:
        lane = self._outgoing
        if lane is None:
            raise self._broken()
        queue, lock = lane.parts()
        with lock:
            stamp = lane.stamp()
            message = payload + stamp
            while queue.put(message, tensors, _SLICE) is not _PUT:
                # The queue only knows which processes have it open. Whether one still reads, the socket knows.
                if _waited(self._handle, 0, _SLICE / 10):
                    raise self._broken()
            self._write(stamp + kind)

    def _write(self, packet: bytes) -> None:
        try:
            os.write(self._handle, packet)
        except (BrokenPipeError, ConnectionResetError):
            raise self._broken() from None

    def _broken(self) -> BrokenPipeError:
        self._outgoing = None  # frees messages that nobody will receive
        return BrokenPipeError(errno.EPIPE, "every process that had the other end of the pipe has ended or closed it")

    def __reduce__(self) -> Any:
        """Reduce the end for a child process, or for sending it through a connection or queue."""
        lanes = self._incoming, self._outgoing
        return _rebuild, (*lanes, ticket_for(self.fileno(), lanes), self._readable, self._writable)


def _waited(fd: int, events: int, timeout: float | None) -> list[tuple[int, int]]:
    """Wait for events or hang-up on a descriptor; unlike select, this works beyond descriptor 1023."""
    waiting = select.poll()
    waiting.register(fd, events)
    return waiting.poll(None if timeout is None else poll_milliseconds(timeout))


def _rebuild(
    incoming: _Lane | None, outgoing: _Lane | None, ticket: Any, readable: bool, writable: bool
) -> PipeConnection:
    """Rebuild a received end. Its lanes are open by now, so the sender may drop its own."""
    return PipeConnection(ticket.detach(), incoming, outgoing, readable, writable)


def Pipe(duplex: bool = True) -> tuple[PipeConnection, PipeConnection]:  # noqa: N802 (multiprocessing's name)
    """Create two connected ends. Unless `duplex`, the first only receives and the second only sends."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(True)  # overrides socket.setdefaulttimeout
    one, other = (end.detach() for end in ends)
    forth, back = _Lane(), _Lane() if duplex else None
    return PipeConnection(one, forth, back, True, duplex), PipeConnection(other, back, forth, duplex, True)
