"""Named sessions: objects that one program keeps in a session are there for the next, however the first one ended."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from multiprocessing import util
from typing import Any

from drover import _core, _objects, _session
from drover._errors import Busy, InvalidArgument, NotFound, Unsupported

__all__ = ["Session"]

# Under a name lies a tensor of bytes: a header (this magic, the number of further tensors, the token under which they
# are kept) and the pickle. Replacing that one tensor is atomic: a program that dies meanwhile leaves the old object
# or the new one. A token begins with the number of the participant that created it and is never used twice.
_MAGIC = b"drover.py\x01\x00\x00"
_HEAD = struct.Struct("<12sI16s")
_RANDOM_BYTES = 4
_NUMBER_MASK = 0xFFFFFFFF
_MOST_NAME_BYTES = 100
_PART_NAME = re.compile(r"^(.*)#([0-9a-f]{16})\.[0-9]+$")

# Tokens of the `keep` calls in progress in this process.
_in_progress: set[str] = set()


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
        kept. Arrays that already lie in shared memory are not copied. Raises InvalidArgument for an invalid name.
        """
        _check_name(name)
        payload, tensors = _objects.dumps(thing, inline=0)
        token = f"{self._core.incarnation & _NUMBER_MASK:08x}{os.urandom(_RANDOM_BYTES).hex()}"
        _in_progress.add(token)
        try:
            return self._keep_as(name, token, payload, tensors)
        finally:
            _in_progress.discard(token)

    def _keep_as(self, name: str, token: str, payload: bytes, tensors: Any) -> Any:
        kept = [self._keep_tensor(_part_name(name, token, number), tensor) for number, tensor in enumerate(tensors)]
        head = _HEAD.pack(_MAGIC, len(kept), token.encode())
        before = self._token_of(name)
        self._core.keep(name, _core.copied(self._core, head + payload))
        self._sweep(name, before)
        return _objects.loads(payload, kept)

    def recall(self, name: str) -> Any:
        """Return the object kept under a name; it stays kept. Raises NotFound if there is none.

        Nothing is copied, whatever the size: all processes that recall an object share the memory of its arrays.
        """
        _check_name(name)
        head = self._recall_head(name)
        while True:
            try:
                return self._read(name, head)
            except NotFound:
                # Either it was replaced meanwhile, so that there is a new one, or it is gone.
                before, head = head, self._recall_head(name)
                if bytes(memoryview(before)) == bytes(memoryview(head)):
                    raise

    def kept(self) -> dict[str, int]:
        """Return the names of all kept objects, with their sizes in bytes of shared memory."""
        infos = self._core.kept()
        sizes = {info["name"]: info["bytes"] for info in infos if not _PART_NAME.match(info["name"])}
        for info in infos:
            part = _PART_NAME.match(info["name"])
            if part is not None and part[1] in sizes:
                sizes[part[1]] += info["bytes"]
        return sizes

    def drop(self, name: str) -> None:
        """Stop keeping an object; recalled copies stay valid. Raises NotFound if there is none."""
        _check_name(name)
        if name not in self.kept():
            raise self._not_found(name)
        before = self._token_of(name)
        self._core.drop(name)
        self._sweep(name, before)

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

    def _keep_tensor(self, name: str, tensor: _core.Tensor) -> _core.Tensor:
        try:
            self._core.keep(name, tensor)
        except Unsupported:
            # Memory of another library, which would end with this process.
            tensor = tensor.copy()
            self._core.keep(name, tensor)
        return tensor

    def _token_of(self, name: str) -> str:
        """Return the token of the object kept under a name; empty if there is none."""
        try:
            view = memoryview(self._core.recall(name))
        except (NotFound, BufferError):
            return ""
        if view.nbytes < _HEAD.size or view[: len(_MAGIC)] != _MAGIC:
            return ""
        return _HEAD.unpack_from(view)[2].decode()

    def _sweep(self, name: str, before: str) -> None:
        """Drop the parts of the previous object of this name, and those left by programs that died.

        Parts are kept before the name that refers to them, so parts of living participants are left alone: they may
        be in the middle of `keep`. A participant that was overtaken drops its own parts in its next `keep`.
        """
        # The order matters: if a part is listed here and its token is not busy afterwards, its name has been written.
        infos = self._core.kept()
        busy = _in_progress.copy()
        living = {f"{one['incarnation'] & _NUMBER_MASK:08x}" for one in self._core.participants()}
        living.discard(f"{self._core.incarnation & _NUMBER_MASK:08x}")
        now = self._token_of(name)
        for info in infos:
            part = _PART_NAME.match(info["name"])
            if part is None or part[1] != name or part[2] == now:
                continue
            if part[2] == before or not (part[2] in busy or part[2][:8] in living):
                with contextlib.suppress(NotFound):
                    self._core.drop(info["name"])

    def _recall_head(self, name: str) -> _core.Tensor:
        try:
            return self._core.recall(name)
        except NotFound:
            raise self._not_found(name) from None

    def _not_found(self, name: str) -> NotFound:
        names = ", ".join(map(repr, self.kept())) or "nothing"
        return NotFound(
            f"nothing is kept under {name!r} in the session {self.name!r}; it keeps {names}",
            "keep it first, with keep(name, object); a session without a name ends with its program, and a named one "
            "after an hour without participants",
        )

    def _read(self, name: str, head: _core.Tensor) -> Any:
        if head.dtype != "uint8" or head.place != "cpu":
            return _as_array(head)
        view = memoryview(head)
        if view.nbytes < _HEAD.size or view[: len(_MAGIC)] != _MAGIC:
            return _as_array(head)
        _, count, token = _HEAD.unpack_from(view)
        parts = [self._core.recall(_part_name(name, token.decode(), number)) for number in range(count)]
        return _objects.loads(view[_HEAD.size :], parts)


def _as_array(tensor: _core.Tensor) -> Any:
    """Return a tensor kept by a program in another language: as a numpy array if possible, otherwise for DLPack."""
    if tensor.place != "cpu" or tensor.dtype == "bfloat16":
        return tensor
    import numpy  # noqa: PLC0415 (imported only if needed)

    return numpy.asarray(memoryview(tensor))


def _part_name(name: str, token: str, number: int) -> str:
    return f"{name}#{token}.{number}"


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a name must be a str, not {type(name).__name__}")
    if not name or len(name.encode()) > _MOST_NAME_BYTES or not name.isprintable() or _PART_NAME.match(name):
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
