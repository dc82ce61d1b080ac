"""The connections of managers: objects go to their process, and back, as values, and shared memory stays shared."""

from __future__ import annotations

from multiprocessing import connection, managers
from typing import Any

from drover import _core, _objects, _session
from drover._errors import PeerLost

__all__: list[str] = []

_SERIALIZER = "drover"  # the name under which managers look up how they connect, as in `DroverContext.Manager`
_ELSEWHERE = b"\x00"  # the first byte of a message that lies in a queue, whose name follows; no pickle begins with it
_QUEUE_BYTES = 1 << 20  # a longer pickle lies in a block of shared memory, see `_objects.dumps`
_PATIENCE = 60.0  # seconds that a message may take that was announced


class _Connection:
    """A connection of the standard library that sends what lies in shared memory without a copy.

    All other arrays are copied into the pickle: a manager returns a new copy whenever an object is read, so its
    readers must not share one.
    """

    def __init__(self, inner: connection.Connection) -> None:
        self._inner = inner
        # For messages with tensors, which no socket can carry. Each side makes the queue for what it sends.
        self._outward: _core.Queue | None = None
        self._inward: _core.Queue | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, thing: Any) -> None:
        payload, tensors = _objects.dumps(thing, inline=_objects.ALL_INLINE)
        if not tensors:
            self._inner.send_bytes(payload)
            return
        if self._outward is None:
            self._outward = _core.Queue(_session.current(), 2, _QUEUE_BYTES)
        result = self._outward.put(payload, tensors, _PATIENCE)
        if result is not _core.PutResult.put:
            _objects.unsent(payload)
            raise PeerLost(
                f"a message with {len(tensors)} arrays could not be sent to a manager, or back: {result}",
                "keep the manager, and the process that uses it, alive until the call has returned",
            )
        self._inner.send_bytes(_ELSEWHERE + self._outward.handle.encode())

    def recv(self) -> Any:
        received = self._inner.recv_bytes()
        if not received.startswith(_ELSEWHERE):
            return _objects.loads(received)
        if self._inward is None:
            self._inward = _core.Queue.open(_session.current(), received[len(_ELSEWHERE) :].decode())
        got = self._inward.get(_PATIENCE)
        if not isinstance(got, tuple):
            raise PeerLost(
                f"a message of a manager was announced, but did not come: {got}",
                "keep the manager, and the process that uses it, alive until the call has returned",
            )
        return _objects.loads(*got)


class _Listener(connection.Listener):
    def accept(self) -> Any:
        return _Connection(super().accept())


def _connect(*args: Any, **kwargs: Any) -> Any:
    return _Connection(connection.Client(*args, **kwargs))


# Lets the standard library's managers find these connections; `drover` imports this module once they are imported.
managers.listener_client[_SERIALIZER] = (_Listener, _connect)
