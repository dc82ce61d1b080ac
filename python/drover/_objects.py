"""Python objects as bytes and tensors: pickles, with large buffers beside them in shared memory."""

from __future__ import annotations

import copyreg
import importlib
import pickle
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from drover import _core, _errors, _joining, _main_module, _session
from drover._joining import Part

__all__ = ["alone", "carried", "carry", "dumps", "if_discarded", "loads", "reducers", "unsent"]

PROTOCOL = 5
INLINE = 16 * 1024  # buffers below this are copied with the pickle, which costs less than a block
_MOST_TENSORS = 32
_SPARED = 64 * 1024  # a pickler that made more than this has tables which are not worth to be kept
_PLAIN = frozenset({int, float, bool, str, bytes, type(None), complex})
_FEW = 16
_HEADED = b"\x01"  # a pickle of this protocol begins with another byte
_ALONE = b"\x02"  # nor with this one; then comes the number of who reads it
_HEAD = struct.Struct("<III")
_PART = struct.Struct("<IQQ")

Reducer = Callable[[Any], Any]
reducers: dict[type, Reducer] = {}
# Libraries whose arrays travel by handle, and the module that knows how; each is asked once the library is there.
_awaited = {
    "numpy": "drover._arrays",
    "torch": "drover.torch",
    "cupy": "drover.cupy",
    "jax": "drover._device_arrays",
    "numba.cuda": "drover._device_arrays",
}

# An array that is sent alone needs no pickle if a tensor says all of it. By type: gives that, or None if it does not.
alone: dict[type, Callable[[Any], _core.Tensor | None]] = {}
_ALONE_TORCH = _ALONE + b"\x01"
_readers: dict[int, Callable[[_core.Tensor], Any]] = {}


# A pickle; tensors, named in it by their places in this list; buffers that are not in it, in its order; how each of
# the tensors is joined with others if they are too many.
_Made = tuple[bytes, list[_core.Tensor], list[memoryview], list["_joining.Join | None"]]


class _Maker:
    """A pickler that is used again and again: making one costs more than most pickles do."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        self._parts: list[bytes] = []
        self.write = self._parts.append
        self.tensors: list[_core.Tensor] = []
        self.joins: list[_joining.Join | None] = []  # of each tensor
        self.inline = INLINE
        self._large: list[memoryview] = []
        self._pickler = kind(self, PROTOCOL, buffer_callback=self._is_inside)
        self._table: dict[type, Reducer] | None = None

    def _is_inside(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        # What lies in shared memory is shared, however small it is.
        if raw.nbytes < self.inline and (raw.nbytes == 0 or _core.find_shared(raw) is None):
            return True
        self._large.append(raw)
        return False

    def make(self, thing: Any, table: dict[type, Reducer], inline: int) -> _Made:
        if self._table is not table:
            # By the base class: a subclass with a table of its own, as cloudpickle's, would hide this one.
            pickle.Pickler.dispatch_table.__set__(self._pickler, table)
            self._table = table
        self.inline = inline
        try:
            self._pickler.dump(thing)
        except BaseException:
            # This refers to itself, and would keep what was to be sent until garbage is collected.
            self.tensors, self._large, self.joins = [], [], []
            raise
        finally:
            self._pickler.clear_memo()
        parts, tensors, large = self._parts, self.tensors, self._large
        payload = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        joins = self.joins
        if tensors or large:
            self.tensors, self._large, self.joins = [], [], []
        return payload, tensors, large, joins


class _State:
    """What a thread is at."""

    __slots__ = ("last", "maker", "read", "spare", "undo")

    def __init__(self) -> None:
        self.maker: _Maker | None = None  # makes a pickle now
        self.spare: _Maker | None = None  # made one, and may make the next
        self.read: Sequence[_core.Tensor] | None = None  # came with the pickle that is being read
        self.undo: list[Callable[[], object]] = []  # to be called if the pickle that is being made is thrown away
        self.last: list[Callable[[], object]] = []  # the same for the one that was made last


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = _State()


_local = _Local()


def carry(tensor: _core.Tensor, join: _joining.Join | None = None) -> int:
    """Send a tensor with the pickle that this thread makes; give the number that `carried` takes.

    With `join`, which makes few of many tensors of bytes, there may be more of them than a message carries.
    """
    maker = _local.state.maker
    if maker is None:
        raise pickle.PicklingError(
            "an array in shared memory travels through queues and tasks of drover only, not through pickle alone"
        )
    maker.tensors.append(tensor)
    maker.joins.append(join)
    return len(maker.tensors) - 1


def if_discarded(call: Callable[[], object]) -> None:
    """Call it if the pickle that this thread makes is thrown away: it cannot be made, or has to be made by value."""
    if _local.state.maker is not None:
        _local.state.undo.append(call)


def carried(number: int) -> _core.Tensor:
    """Give a tensor that came with the pickle which this thread reads."""
    tensors = _local.state.read
    if tensors is None:
        raise pickle.UnpicklingError("an array in shared memory was read outside of its message")
    return tensors[number]


def _reduce_tensor(tensor: _core.Tensor) -> tuple[Callable[[int], Any], tuple[int]]:
    return carried, (carry(tensor),)


reducers[_core.Tensor] = _reduce_tensor


class _Tables:
    """How objects of which type are pickled: what is registered anywhere, and then our own."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self.plain: dict[type, Reducer] = {}
        self.by_value: dict[type, Reducer] = {}

    def refresh(self) -> None:
        """Look whether anybody registered something. Tables are replaced, never changed: other threads use them."""
        seen = (len(sys.modules), len(copyreg.dispatch_table), len(ForkingPickler._extra_reducers), len(reducers))
        if seen == self._seen:
            return
        _ask_libraries()
        self.plain = {**copyreg.dispatch_table, **ForkingPickler._extra_reducers, **reducers}
        self.by_value = {}
        self._seen = seen

    def with_cloudpickle(self, own: dict[type, Reducer]) -> dict[type, Reducer]:
        if not self.by_value:
            self.by_value = {**own, **self.plain}
        return self.by_value


_tables = _Tables()


def _ask_libraries() -> None:
    for name, module in list(_awaited.items()):
        library = sys.modules.get(name)
        # Another thread may be in the middle of importing it.
        if library is None or getattr(library.__spec__, "_initializing", False):
            continue
        _awaited.pop(name, None)
        try:
            reducers.update(importlib.import_module(module).reducers(name))
        except (ImportError, AttributeError) as error:
            warnings.warn(f"arrays of {name} go its own way, since this version is unknown: {error}", stacklevel=2)


def _make(thing: Any, inline: int) -> _Made:
    state = _local.state
    outer = state.maker
    state.maker = maker = state.spare or _Maker(pickle.Pickler)
    state.spare = None  # whoever pickles inside of this pickle makes another one
    try:
        made = maker.make(thing, _tables.plain, inline)
    finally:
        state.maker = outer
    if len(made[0]) < _SPARED:
        state.spare = maker
    return made


def _make_by_value(thing: Any, inline: int) -> _Made:
    import cloudpickle  # noqa: PLC0415 (only programs that need it pay for it)

    state = _local.state
    outer = state.maker
    state.maker = maker = _Maker(cloudpickle.Pickler)
    try:
        return maker.make(thing, _tables.with_cloudpickle(cloudpickle.Pickler._dispatch_table), inline)
    finally:
        state.maker = outer


def _is_plain(thing: Any) -> bool:
    """Tell whether pickle alone will do: numbers and texts, and a few of them together."""
    kind = type(thing)
    if kind in _PLAIN:
        return True
    if kind is tuple or kind is list:
        return len(thing) <= _FEW and _PLAIN.issuperset(map(type, thing))
    return (
        kind is dict
        and len(thing) <= _FEW
        and _PLAIN.issuperset(map(type, thing.values()))
        and _PLAIN.issuperset(map(type, thing))
    )


def dumps(thing: Any, inline: int = INLINE) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Turn an object into bytes and what goes with them. Raises what pickle raises, here and now."""
    if _is_plain(thing):
        return pickle.dumps(thing, PROTOCOL), ()
    _tables.refresh()
    state = _local.state
    if (tensor_of := alone.get(type(thing))) is not None and (tensor := tensor_of(thing)) is not None:
        state.last = []
        return _ALONE_TORCH, [tensor]
    outer, state.undo = state.undo, []
    try:
        made = _make_somehow(thing, inline)
        whole = _with_tensors(made) if made[1] or made[2] else (made[0], ())
    except BaseException:
        _discard(state)
        raise
    finally:
        state.last, state.undo = state.undo, outer
    return whole


def unsent(thing: Any) -> None:
    """Undo what was done for an object that this thread gave to `dumps` last, and that was not sent after all."""
    if not _is_plain(thing):
        for call in _local.state.last:
            call()
        _local.state.last = []


def _make_somehow(thing: Any, inline: int) -> _Made:
    try:
        made = _make(thing, inline)
        if b"__main__" not in made[0] or _main_module.is_imported_by_children():
            return made
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    _discard(_local.state)
    return _make_by_value(thing, inline)


def _discard(state: _State) -> None:
    for call in state.undo:
        call()
    state.undo.clear()


def _with_tensors(made: _Made) -> tuple[bytes, Sequence[_core.Tensor]]:
    payload, tensors, large, joins = made
    if not tensors and len(large) <= _MOST_TENSORS:
        return payload, [_share(raw) for raw in large]
    places: Sequence[Part] = ()
    most = _MOST_TENSORS - bool(large)  # the last one is for buffers that are joined
    if len(tensors) > most and any(joins):
        tensors, places = _joining.join_alike(tensors, joins)
    if len(tensors) > most:
        raise _errors.LimitReached(
            f"an object to be sent has {len(tensors)} arrays on devices; one message carries {most}",
            "send it in several messages, or put its arrays into fewer, as with torch.cat",
        )
    if len(tensors) + len(large) <= _MOST_TENSORS:
        return _head(len(tensors), places, ()) + payload, [*tensors, *map(_share, large)]
    shared, parts = _joining.join(large, _MOST_TENSORS - len(tensors), len(tensors))
    return _head(len(tensors), places, parts) + payload, [*tensors, *shared]


def _share(raw: memoryview) -> _core.Tensor:
    return _core.find_shared(raw) or _core.copied(_session.current(), raw)


def _head(tensors: int, places: Sequence[Part], parts: Sequence[Part]) -> bytes:
    """Say how many tensors come before the buffers, and where tensors and buffers lie that were joined."""
    head = _HEAD.pack(tensors, len(places), len(parts))
    return _HEADED + head + b"".join(_PART.pack(*part) for part in (*places, *parts))


def loads(payload: Any, tensors: Sequence[_core.Tensor] = ()) -> Any:
    """Make the object again. Arrays are views on the shared memory that came with the message."""
    if not tensors:
        return pickle.loads(payload)
    view = memoryview(payload)
    if view[0] == _ALONE[0]:
        return _reader(view[1])(tensors[0])
    if view[0] != _HEADED[0]:
        return pickle.loads(payload, buffers=tensors)
    given, placed, count = _HEAD.unpack_from(view, 1)
    begin = 1 + _HEAD.size
    end = begin + (placed + count) * _PART.size
    parts = list(_PART.iter_unpack(view[begin:end]))
    state = _local.state
    outer, state.read = state.read, _sliced(tensors, parts[:placed]) if placed else tensors
    try:
        return pickle.loads(view[end:], buffers=_cut(tensors, parts[placed:]) if count else tensors[given:])
    finally:
        state.read = outer


def _reader(number: int) -> Callable[[_core.Tensor], Any]:
    if number not in _readers:
        if number != _ALONE_TORCH[1]:
            raise pickle.UnpicklingError(f"an array was sent as that of library {number}, which this drover lacks")
        _readers[number] = importlib.import_module("drover.torch").opened
    return _readers[number]


def _sliced(tensors: Sequence[_core.Tensor], places: Sequence[Part]) -> list[_core.Tensor]:
    return [
        tensors[index] if size == _joining.WHOLE else tensors[index].slice(begin, begin + size)
        for index, begin, size in places
    ]


def _cut(tensors: Sequence[_core.Tensor], parts: Sequence[Part]) -> list[memoryview]:
    views: dict[int, memoryview] = {}
    cut = []
    for index, begin, size in parts:
        if index not in views:
            views[index] = memoryview(tensors[index])
        cut.append(views[index][begin : begin + size])
    return cut
