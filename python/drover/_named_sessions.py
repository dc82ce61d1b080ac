"""Named sessions: objects that one program keeps in a session are there for the next, however the first one ended."""

from __future__ import annotations

import os
import struct
from multiprocessing import util
from typing import Any

from drover import _core, _objects, _session
from drover._errors import Busy, InvalidArgument, NotFound

__all__ = ["Session"]

# Under a name lie tensors, which are kept and replaced together: one of bytes, with a header and the pickle, and one
# for each of the arrays in it.
_MAGIC = b"drover.py\x02\x00\x00"
_HEAD = struct.Struct("<12sI")  # the magic, and the number of further tensors
_MOST_NAME_BYTES = 100


class Session:
    """The session of this process: a small keeper process that holds shared memory together.

    A process is in one session, and its children are in the same one. `Session(name)` joins the named session, or
    starts it; it must come before anything is shared, otherwise it raises Busy. A named session outlives its
    programs, and so do the objects kept in it. `Session()` is the current session of the process, or a new one
    without a name, which ends with the process.

    >>> import drover
    >>> session = drover.Session("training")
    >>> _ = session.keep("progress", {"epoch": 3})
    >>> session.recall("progress")
    {'epoch': 3}
    >>> session.end()
    """

    def __init__(self, name: str | None = None) -> None:
        """Join the session, or start it."""
        self._core = _session.current() if name is None else _joined(name)

    @property
    def name(self) -> str:
        """The name of the session; empty if it has none."""
        return self._core.name

    def keep(self, name: str, thing: Any) -> Any:
        """Keep an object under a name, replacing the previous one, until it is dropped or the session ends.

        Returns the object as it is kept: its arrays are views of the kept memory, so writing to them changes what is
        kept. Arrays that already lie in shared memory of drover are not copied. Raises InvalidArgument for an invalid
        name, and LimitReached if its arrays lie in more than 1,022 blocks of shared memory.
        """
        _check_name(name)
        payload, tensors = _objects.dumps(thing, inline=_objects.NONE_INLINE)
        head = _core.copied(self._core, _HEAD.pack(_MAGIC, len(tensors)) + payload)
        self._core.keep(name, [head, *tensors])
        return _objects.loads(payload, tensors)

    def recall(self, name: str) -> Any:
        """Return the object kept under a name; it stays kept. Raises NotFound if there is none.

        Nothing is copied, whatever the size: all processes that recall an object share the memory of its arrays.
        """
        _check_name(name)
        try:
            head, *tensors = self._core.recall(name)
        except NotFound:
            raise self._not_found(name) from None
        return _read(head, tensors)

    def kept(self) -> dict[str, int]:
        """Return the names of all kept objects, with their sizes in bytes of shared memory."""
        return {info["name"]: info["bytes"] for info in self._core.kept()}

    def drop(self, name: str) -> None:
        """Stop keeping an object; recalled copies stay valid. Raises NotFound if there is none."""
        _check_name(name)
        try:
            self._core.drop(name)
        except NotFound:
            raise self._not_found(name) from None

    def end(self) -> None:
        """End the session for all processes: those started in it are killed, and kept objects are freed."""
        self._core.end()
        _leave(self._core)

    def close(self) -> None:
        """Leave the session. Recalled objects stay usable but cannot be sent; sharing starts a new session."""
        _leave(self._core)

    def __enter__(self) -> Session:
        """Return this session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the session."""
        self.close()

    def __repr__(self) -> str:
        """Show the name."""
        return f"<drover.Session({self.name or 'without a name'!r})>"

    def _not_found(self, name: str) -> NotFound:
        names = ", ".join(map(repr, self.kept())) or "nothing"
        return NotFound(
            f"nothing is kept under {name!r} in the session {self.name!r}; it keeps {names}",
            "keep it first, with keep(name, object); a session without a name ends with its program, and a named one "
            "after an hour without participants",
        )


def _read(head: _core.Tensor, tensors: list[_core.Tensor]) -> Any:
    if head.dtype != "uint8" or head.place != "cpu":
        return _all_as_arrays(head, tensors)
    view = memoryview(head)
    if view.nbytes < _HEAD.size or _HEAD.unpack_from(view) != (_MAGIC, len(tensors)):
        return _all_as_arrays(head, tensors)
    return _objects.loads(view[_HEAD.size :], tensors)


def _all_as_arrays(head: _core.Tensor, tensors: list[_core.Tensor]) -> Any:
    return [_as_array(one) for one in (head, *tensors)] if tensors else _as_array(head)


def _as_array(tensor: _core.Tensor) -> Any:
    """Return a tensor kept by a program in another language: as a numpy array if possible, otherwise for DLPack."""
    if tensor.place != "cpu" or tensor.dtype == "bfloat16":
        return tensor
    import numpy  # noqa: PLC0415 (imported only if needed)

    return numpy.asarray(memoryview(tensor))


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a name must be a str, not {type(name).__name__}")
    if not name or len(name.encode()) > _MOST_NAME_BYTES or not name.isprintable():
        raise InvalidArgument(
            f"{name!r} is not a valid name for a kept object",
            f"use a name of 1 to {_MOST_NAME_BYTES} bytes without control characters",
        )


def _joined(name: str) -> _core.Session:
    # A process that was started in a session is already in it.
    if _session.session_variable in os.environ:
        _session.current()
    with _session._guard:
        if _session._current is None:
            _session._current = _core.Session.open(name, _session._own_name())
            util.Finalize(None, _session._leave, exitpriority=-1000)
        joined = _session._current
    if joined.name != name:
        raise Busy(
            f"cannot join the session {name!r}: this process is already in "
            + (f"the session {joined.name!r}" if joined.name else "a session without a name"),
            f"call drover.Session({name!r}) before anything is shared, in the first process of the program",
        )
    return joined


def _leave(session: _core.Session) -> None:
    with _session._guard:
        if _session._current is session:
            _session._current = None
