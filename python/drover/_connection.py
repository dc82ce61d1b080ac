"""Pipes with the behaviour of multiprocessing's: a socket, and beside it shared memory for what is large."""

from __future__ import annotations

import errno
import io
import math
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
from drover._descriptors import Offer, Standing
from drover._errors import Corrupt, Unsupported
from drover._synchronize import Lock

__all__ = ["Pipe", "PipeConnection"]

# A packet of the socket is whole or is not there, whoever is killed. Its last byte says what it is: the message
# itself, or that the message, an object or bytes, is in the lane. Readers of pickles do not mind a byte too many.
_SMALL, _OBJECT, _BYTES = b"\0", b"\1", b"\2"
_INLINE = 16 * 1024
_STAMP = struct.Struct("<QQ")
_CAPACITY = 16  # messages with arrays on their way; more wait at `send`
_RING_BYTES = 16 << 20
_SLICE = 0.1  # seconds after which one who waits for room looks whether anybody reads
_PATIENCE = 30.0  # seconds for what was announced to be there; it is, unless somebody stole it

_making = threading.Lock()


class _Lane:
    """One direction of a pipe, for messages that its socket only announces: a queue, made when it is first needed.

    Who writes holds the lock from the put to the announcement, so both are in one order whoever writes. What is in
    the queue before an announced message was never announced: its sender was killed, or interrupted, in between.
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
        """Give what no other message of this lane has. With the lock held."""
        if not self._id:
            self._id = int.from_bytes(os.urandom(8), "little") | 1
        self._count += 1
        return _STAMP.pack(self._id, self._count)

    def take(self, stamp: bytes) -> tuple[Any, Sequence[_core.Tensor]]:
        """Take the message that was announced."""
        queue, _ = self.parts()
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            got = queue.get(_SLICE)
            if type(got) is tuple:
                if bytes(memoryview(got[0])[-_STAMP.size :]) == stamp:
                    return got
            elif got != 1:
                time.sleep(_SLICE)
        raise Corrupt(
            "a message that was announced on a connection is not there: another process with the same end took it",
            "let one process at a time receive from an end, under a lock that they share",
        )

    def __getstate__(self) -> Any:
        """Give what others open it by, and see to it that it exists until a child that is being started has."""
        queue, lock = self.parts()
        keep = getattr(context.get_spawning_popen(), "keep_until_joined", None)
        if keep is not None:
            keep(self)
        return queue.handle, lock

    def __setstate__(self, state: Any) -> None:
        """Open it here."""
        handle, lock = state
        self.__init__()
        self._parts = _core.Queue.open(_session.current(), handle), lock


class PipeConnection(connection.Connection):
    """One end of a pipe. What is sent survives the sender, and is received whole or not at all.

    Any object is sent as through a queue: arrays travel by handle. One process at a time may read from an end, any
    number may write to it.
    """

    def __init__(
        self, handle: int, incoming: _Lane | None, outgoing: _Lane | None, readable: bool, writable: bool
    ) -> None:
        """Take over one end of the socket; `Pipe` makes them."""
        super().__init__(handle, readable, writable)
        self._incoming = incoming
        self._outgoing = outgoing
        self._reading = threading.Lock()

    def _close(self, _close: Any = os.close) -> None:
        self._incoming = self._outgoing = None
        _close(self._handle)

    def send(self, obj: Any) -> None:
        """Send an object. What cannot be sent raises here and now; waits while there is no room."""
        self._check_closed()
        self._check_writable()
        payload, tensors = _objects.dumps(obj)
        try:
            if not tensors and len(payload) <= _INLINE:
                self._write(payload + _SMALL)
            else:
                self._put(payload, tensors, _OBJECT)
        except BaseException:
            _objects.unsent(obj)
            raise

    def recv(self) -> Any:
        """Receive an object. EOFError: all that was sent is received, and nobody is left to send more."""
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
        elif tensors:  # an object with arrays, received as bytes: as if pickle alone had sent it
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
        """Wait for a message: what is in it, and of which kind it is."""
        with self._reading:  # an announcement and its message go to the same thread
            packet = self._read()
            if packet[-1] == _SMALL[0]:
                return packet, (), _SMALL[0]
            if self._incoming is None or len(packet) != _STAMP.size + 1:
                raise OSError(errno.EBADMSG, "what came is no message: somebody wrote to the connection's descriptor")
            return *self._incoming.take(packet[: _STAMP.size]), packet[-1]

    def _read(self) -> bytes:
        while True:
            try:
                packet = os.read(self._handle, _INLINE + 1)
            except ConnectionResetError:  # told once, where something was left unread; what was sent comes first
                continue
            if packet:
                return packet
            self._incoming = None  # with what was sent and never announced
            raise EOFError

    def _put(self, payload: bytes, tensors: Sequence[_core.Tensor], kind: bytes) -> None:
        lane = self._outgoing
        if lane is None:
            raise self._broken()
        queue, lock = lane.parts()
        with lock:
            stamp = lane.stamp()
            message = payload + stamp
            while queue.put(message, tensors, _SLICE):
                # The queue knows who has it open; who reads is known by the socket alone.
                if _waited(self._handle, 0, _SLICE / 10):
                    raise self._broken()
            self._write(stamp + kind)

    def _write(self, packet: bytes) -> None:
        try:
            os.write(self._handle, packet)
        except (BrokenPipeError, ConnectionResetError):
            raise self._broken() from None

    def _broken(self) -> BrokenPipeError:
        self._outgoing = None  # with what nobody will receive
        return BrokenPipeError(errno.EPIPE, "every process that had the other end of the pipe has ended or closed it")

    def __reduce__(self) -> Any:
        """Give what a child, or whoever receives it through another connection or a queue, makes its own one of."""
        lanes = self._incoming, self._outgoing
        return _rebuild, (*lanes, self._named(self.fileno(), lanes), self._readable, self._writable)

    def _named(self, fd: int, lanes: Any) -> Any:
        starting = context.get_spawning_popen()
        if starting is None:
            offer = Offer(fd, is_once=True, kept=lanes)
            _objects.if_discarded(offer.withdraw)
            return offer.ticket
        try:
            return starting.DupFd(starting.duplicate_for_child(fd))
        except Unsupported:  # a pool, which does not know yet when it starts which worker
            offer = Offer(fd, is_once=False)
            starting.keep_until_joined(Standing(offer))
            return offer.ticket


def _waited(fd: int, events: int, timeout: float | None) -> list[tuple[int, int]]:
    """Wait for events, or for the end, of a descriptor of any number."""
    waiting = select.poll()
    waiting.register(fd, events)
    return waiting.poll(None if timeout is None else max(0, math.ceil(timeout * 1e3)))


def _rebuild(
    incoming: _Lane | None, outgoing: _Lane | None, ticket: Any, readable: bool, writable: bool
) -> PipeConnection:
    """Make an end of what was sent. The lanes are open by now, so who sent it need not keep them any longer."""
    return PipeConnection(ticket.detach(), incoming, outgoing, readable, writable)


def Pipe(duplex: bool = True) -> tuple[PipeConnection, PipeConnection]:  # noqa: N802 (multiprocessing's name)
    """Make two connected ends; if not duplex, the first only receives and the second only sends."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(True)  # whatever the default timeout of sockets is
    one, other = (end.detach() for end in ends)
    forth, back = _Lane(), _Lane() if duplex else None
    return PipeConnection(one, forth, back, True, duplex), PipeConnection(other, back, forth, duplex, True)
