"""Named sessions: what a program keeps in one is there for the next, however the first one ended."""

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

# What is kept under a name is a tensor of bytes: this, how many tensors belong to it, under which token they are
# kept, and the pickle. So a name changes its meaning at once: who dies meanwhile leaves the old one or the new. A
# token begins with the number of the participant that made it, and is never used twice.
_MAGIC = b"drover.py\x01\x00\x00"
_HEAD = struct.Struct("<12sI16s")
_RANDOM_BYTES = 4
_NUMBER_MASK = 0xFFFFFFFF
_MOST_NAME_BYTES = 100
_PART_NAME = re.compile(r"^(.*)#([0-9a-f]{16})\.[0-9]+$")

# Tokens of what threads of this process keep at this moment.
_under_way: set[str] = set()


class Session:
    """This process in a session: a small process that holds memory together, and outlives programs if it has a name.

    A process is in one session, and so are those that it starts. `Session(name)` joins the one with this name, or
    starts it; do it before anything is shared. `Session()` is the session in which this process is already, or one
    without a name, which ends with this process.
    """

    def __init__(self, name: str | None = None) -> None:
        """Join it, or start it."""
        self._core = _session.current() if name is None else _joined(name)

    @property
    def name(self) -> str:
        """Its name; empty if it has none."""
        return self._core.name

    def keep(self, name: str, thing: Any) -> Any:
        """Keep an object under a name until it is dropped or the session ends; what had the name before is replaced.

        Gives the object as it is kept: its arrays are the memory that is kept, so what is written to them is kept,
        too. An array that lies in shared memory already is not copied.
        """
        _check_name(name)
        payload, tensors = _objects.dumps(thing, inline=0)
        token = f"{self._core.incarnation & _NUMBER_MASK:08x}{os.urandom(_RANDOM_BYTES).hex()}"
        _under_way.add(token)
        try:
            return self._keep_as(name, token, payload, tensors)
        finally:
            _under_way.discard(token)

    def _keep_as(self, name: str, token: str, payload: bytes, tensors: Any) -> Any:
        kept = [self._keep_tensor(_part_name(name, token, number), tensor) for number, tensor in enumerate(tensors)]
        head = _HEAD.pack(_MAGIC, len(kept), token.encode())
        before = self._token_of(name)
        self._core.keep(name, _core.copied(self._core, head + payload))
        self._sweep(name, before)
        return _objects.loads(payload, kept)

    def recall(self, name: str) -> Any:
        """Give what is kept under a name; it stays kept. Arrays are the same memory for all who recall it.

        Takes as long whatever their size. Raises `NotFound` if there is none.
        """
        _check_name(name)
        head = self._recall_head(name)
        while True:
            try:
                return self._read(name, head)
            except NotFound:
                # Replaced meanwhile: then there is another one now.
                before, head = head, self._recall_head(name)
                if bytes(memoryview(before)) == bytes(memoryview(head)):
                    raise

    def kept(self) -> dict[str, int]:
        """Give the names under which something is kept, and how many bytes of shared memory each has."""
        infos = self._core.kept()
        sizes = {info["name"]: info["bytes"] for info in infos if not _PART_NAME.match(info["name"])}
        for info in infos:
            part = _PART_NAME.match(info["name"])
            if part is not None and part[1] in sizes:
                sizes[part[1]] += info["bytes"]
        return sizes

    def drop(self, name: str) -> None:
        """Keep it no longer. Who recalled it still has it. Raises `NotFound` if there is none."""
        _check_name(name)
        if name not in self.kept():
            raise self._not_found(name)
        before = self._token_of(name)
        self._core.drop(name)
        self._sweep(name, before)

    def end(self) -> None:
        """End the session for everybody: processes that were started in it are killed, what is kept is gone."""
        self._core.end()
        _leave(self._core)

    def close(self) -> None:
        """Leave the session; the next thing to be shared begins another. What was recalled can be used, not sent."""
        _leave(self._core)

    def __enter__(self) -> Session:
        """Be in it for a block of statements."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it."""
        self.close()

    def __repr__(self) -> str:
        """Show its name."""
        return f"<drover.Session({self.name or 'without a name'!r})>"

    def _keep_tensor(self, name: str, tensor: _core.Tensor) -> _core.Tensor:
        try:
            self._core.keep(name, tensor)
        except Unsupported:
            # Memory of another library, which goes with this process.
            tensor = tensor.copy()
            self._core.keep(name, tensor)
        return tensor

    def _token_of(self, name: str) -> str:
        """Give the token of what is kept under a name; nothing if it has none."""
        try:
            view = memoryview(self._core.recall(name))
        except (NotFound, BufferError):
            return ""
        if view.nbytes < _HEAD.size or view[: len(_MAGIC)] != _MAGIC:
            return ""
        return _HEAD.unpack_from(view)[2].decode()

    def _sweep(self, name: str, before: str) -> None:
        """Drop the parts of what had this name before, and what was left by programs that died.

        Another program may keep something under this name at this moment: its parts are there before their name is,
        so those of the living are left alone. One that was overtaken drops what it left when it next keeps something.
        """
        # In this order: whoever has parts by now and is not busy any more has had its name written, too.
        infos = self._core.kept()
        busy = _under_way.copy()
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
            "when nobody took part in it for an hour",
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
    """Give what another kind of program kept: an array of numpy if it can be one, else as DLPack's users take it."""
    if tensor.place != "cpu" or tensor.dtype == "bfloat16":
        return tensor
    import numpy  # noqa: PLC0415 (only for these)

    return numpy.asarray(memoryview(tensor))


def _part_name(name: str, token: str, number: int) -> str:
    return f"{name}#{token}.{number}"


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"names are texts, not {type(name).__name__}")
    if not name or len(name.encode()) > _MOST_NAME_BYTES or not name.isprintable() or _PART_NAME.match(name):
        raise InvalidArgument(
            f"{name!r} is no name under which a session keeps something",
            f"such a name has 1 to {_MOST_NAME_BYTES} bytes and no control characters",
        )


def _joined(name: str) -> _core.Session:
    # A process that was started in a session is in it from the beginning.
    if _session.session_variable in os.environ:
        _session.current()
    with _session._guard:
        if _session._current is None:
            _session._current = _core.Session.open(name, _session._own_name())
            util.Finalize(None, _session._leave, exitpriority=-1000)
        joined = _session._current
    if joined.name != name:
        raise Busy(
            f"this process is in the session {joined.name!r} and cannot join {name!r}"
            if joined.name
            else f"this process is in a session without a name already and cannot join {name!r}",
            f"write drover.Session({name!r}) before anything is shared, in the first process of the program",
        )
    return joined


def _leave(session: _core.Session) -> None:
    with _session._guard:
        if _session._current is session:
            _session._current = None
