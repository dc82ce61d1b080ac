"""Python objects as bytes and tensors: pickles whose large buffers lie in shared memory."""

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
INLINE = 16 * 1024  # smaller buffers are copied into the pickle, which costs less than a block of shared memory
_MOST_TENSORS = 32  # in one message; kMostTensors in bindings/queue.cpp
_SPARED = 64 * 1024  # picklers that wrote more than this are dropped: their memo tables have grown large
# First byte of a payload that is not just a pickle; a pickle of this protocol begins with neither.
_HEADED = b"\x01"  # a header follows, then the pickle
_ALONE = b"\x02"  # the number of the reader follows
_HEAD = struct.Struct("<III")  # numbers of tensors, of joined tensors, and of joined buffers
_PART = struct.Struct("<IQQ")

Reducer = Callable[[Any], Any]
reducers: dict[type, Reducer] = {}
# Libraries whose arrays travel by handle, and the module with their reducers, which is imported after the library.
_awaited = {
    "numpy": "drover._arrays",
    "torch": "drover.torch",
    "cupy": "drover.cupy",
    "jax": "drover._device_arrays",
    "numba.cuda": "drover._device_arrays",
}

# An array that is the whole message needs no pickle if a tensor describes it completely. By type: returns that
# tensor, or None if it would not.
alone: dict[type, Callable[[Any], _core.Tensor | None]] = {}
_ALONE_TORCH = _ALONE + b"\x01"
_readers: dict[int, Callable[[_core.Tensor], Any]] = {}


# The pickle; tensors that it names by index; its out-of-band buffers in order; the join function of each tensor.
_Made = tuple[bytes, list[_core.Tensor], list[memoryview], list["_joining.Join | None"]]


class _Maker:
    """A reusable pickler: creating one costs more than most pickles do."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        self._parts: list[bytes] = []
        self.write = self._parts.append
        self.tensors: list[_core.Tensor] = []
        self.joins: list[_joining.Join | None] = []  # one for each tensor
        self.inline = INLINE
        self._large: list[memoryview] = []
        self._pickler = kind(self, PROTOCOL, buffer_callback=self._is_inside)
        self._table: dict[type, Reducer] | None = None

    def _is_inside(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        # Buffers in shared memory are shared, however small they are.
        if raw.nbytes < self.inline and (raw.nbytes == 0 or _core.find_shared(raw) is None):
            return True
        self._large.append(raw)
        return False

    def make(self, thing: Any, table: dict[type, Reducer], inline: int) -> _Made:
        if self._table is not table:
            # Set on the base class: cloudpickle's subclass has a dispatch_table of its own, which would hide this
            # one.
            pickle.Pickler.dispatch_table.__set__(self._pickler, table)
            self._table = table
        self.inline = inline
        try:
            self._pickler.dump(thing)
        except BaseException:
            # This object is part of a reference cycle and would keep the failed message until garbage collection.
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
    """The pickling state of a thread."""

    __slots__ = ("last", "maker", "read", "spare", "undo")

    def __init__(self) -> None:
        self.maker: _Maker | None = None  # of the pickle in progress
        self.spare: _Maker | None = None  # idle, for the next pickle
        self.read: Sequence[_core.Tensor] | None = None  # tensors of the message that is being read
        self.undo: list[Callable[[], object]] = []  # to call if the pickle in progress is discarded
        self.last: list[Callable[[], object]] = []  # the same for the last pickle


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = _State()


_local = _Local()


def carry(tensor: _core.Tensor, join: _joining.Join | None = None) -> int:
    """Attach a tensor to the pickle that this thread is writing; return the number to pass to `carried`.

    With `join`, which packs tensors of bytes into fewer ones, an object may have more of them than a message carries.
    """
    maker = _local.state.maker
    if maker is None:
        raise pickle.PicklingError(
            "cannot pickle an array in shared memory: send it through a drover queue, pipe or task"
        )
    maker.tensors.append(tensor)
    maker.joins.append(join)
    return len(maker.tensors) - 1


def if_discarded(call: Callable[[], object]) -> None:
    """Call `call` if the pickle that this thread is writing is discarded: it failed, or is redone by value."""
    if _local.state.maker is not None:
        _local.state.undo.append(call)


def carried(number: int) -> _core.Tensor:
    """Return a tensor of the message that this thread is reading."""
    tensors = _local.state.read
    if tensors is None:
        raise pickle.UnpicklingError("cannot unpickle an array in shared memory outside of its message")
    return tensors[number]


def _reduce_tensor(tensor: _core.Tensor) -> tuple[Callable[[int], Any], tuple[int]]:
    return carried, (carry(tensor),)


reducers[_core.Tensor] = _reduce_tensor


class _Tables:
    """The dispatch tables of picklers: copyreg's and multiprocessing's entries, overridden by our own."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self.plain: dict[type, Reducer] = {}
        self.by_value: dict[type, Reducer] = {}

    def refresh(self) -> None:
        """Rebuild the tables if a reducer was registered. They are replaced, not changed: other threads use them."""
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
        # Another thread may still be importing it.
        if library is None or getattr(library.__spec__, "_initializing", False):
            continue
        _awaited.pop(name, None)
        try:
            reducers.update(importlib.import_module(module).reducers(name))
        except (ImportError, AttributeError) as error:
            warnings.warn(
                f"arrays of {name} are pickled by the library itself, because this version is not supported: {error}",
                stacklevel=2,
            )


def _make(thing: Any, inline: int) -> _Made:
    state = _local.state
    outer = state.maker
    state.maker = maker = state.spare or _Maker(pickle.Pickler)
    state.spare = None  # in use: a reducer that pickles creates another one
    try:
        made = maker.make(thing, _tables.plain, inline)
    finally:
        state.maker = outer
    if len(made[0]) < _SPARED:
        state.spare = maker
    return made


def _make_by_value(thing: Any, inline: int) -> _Made:
    import cloudpickle  # noqa: PLC0415 (imported only if needed)

    state = _local.state
    outer = state.maker
    state.maker = maker = _Maker(cloudpickle.Pickler)
    try:
        return maker.make(thing, _tables.with_cloudpickle(cloudpickle.Pickler._dispatch_table), inline)
    finally:
        state.maker = outer


def dumps(thing: Any, inline: int = INLINE) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Return an object as bytes and tensors. Raises what pickling raises."""
    if _core.is_plain(thing):
        _local.state.last = []
        return pickle.dumps(thing, PROTOCOL), ()
    _tables.refresh()
    state = _local.state
    if (tensor_of := alone.get(type(thing))) is not None and (tensor := tensor_of(thing)) is not None:
        state.last = []
        return _ALONE_TORCH, [tensor]
    outer, state.undo = state.undo, []
    try:
        made = _make_by_either(thing, inline)
        whole = _with_tensors(made) if made[1] or made[2] else (made[0], ())
    except BaseException:
        _discard(state)
        raise
    finally:
        state.last, state.undo = state.undo, outer
    return whole


def unsent() -> None:
    """Undo the side effects of this thread's last `dumps`, whose result was not sent after all."""
    for call in _local.state.last:
        call()
    _local.state.last = []


def _make_by_either(thing: Any, inline: int) -> _Made:
    """Pickle by reference if possible, otherwise by value."""
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
    most = _MOST_TENSORS - bool(large)  # one is reserved for joined buffers
    if len(tensors) > most and any(joins):
        tensors, places = _joining.join_alike(tensors, joins)
    if len(tensors) > most:
        raise _errors.LimitReached(
            f"cannot send an object with {len(tensors)} device arrays: one message carries at most {most}",
            "send it in several messages, or combine its arrays, for example with torch.cat",
        )
    if len(tensors) + len(large) <= _MOST_TENSORS:
        return _head(len(tensors), places, ()) + payload, [*tensors, *map(_share, large)]
    shared, parts = _joining.join(large, _MOST_TENSORS - len(tensors), len(tensors))
    return _head(len(tensors), places, parts) + payload, [*tensors, *shared]


def _share(raw: memoryview) -> _core.Tensor:
    return _core.find_shared(raw) or _core.copied(_session.current(), raw)


def _head(tensors: int, places: Sequence[Part], parts: Sequence[Part]) -> bytes:
    """Return the header: how many tensors come before the buffers, and the parts of joined tensors and buffers."""
    head = _HEAD.pack(tensors, len(places), len(parts))
    return _HEADED + head + b"".join(_PART.pack(*part) for part in (*places, *parts))


def loads(payload: Any, tensors: Sequence[_core.Tensor] = ()) -> Any:
    """Rebuild an object. Its arrays are views of the shared memory that came with the message."""
    if not tensors:
        return pickle.loads(payload)
    view = memoryview(payload)
    if view[0] == _ALONE[0]:
        return _reader(view[1])(tensors[0])
    if view[0] != _HEADED[0]:
        return pickle.loads(payload, buffers=tensors)
    first_buffer, joined, cut = _HEAD.unpack_from(view, 1)
    begin = 1 + _HEAD.size
    end = begin + (joined + cut) * _PART.size
    parts = list(_PART.iter_unpack(view[begin:end]))
    state = _local.state
    outer, state.read = state.read, _sliced(tensors, parts[:joined]) if joined else tensors
    try:
        return pickle.loads(view[end:], buffers=_cut(tensors, parts[joined:]) if cut else tensors[first_buffer:])
    finally:
        state.read = outer


def _reader(number: int) -> Callable[[_core.Tensor], Any]:
    if number not in _readers:
        if number != _ALONE_TORCH[1]:
            raise pickle.UnpicklingError(
                f"cannot read an array of library {number}: the sender uses a newer version of drover"
            )
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
