"""Python objects as bytes and tensors: pickles whose arrays and large buffers lie in shared memory."""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import os
import pickle
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from drover import _core, _main_module, _session, _unsendable
from drover._errors import InvalidArgument

__all__ = [
    "alone",
    "arrays",
    "carried",
    "dumps",
    "if_discarded",
    "is_by_reference",
    "is_inline",
    "is_lasting",
    "loads",
    "reducers",
    "send_mode",
    "set_send_mode",
    "unsent",
]

PROTOCOL = 5
INLINE = 16 * 1024  # smaller buffers are copied into the pickle, which costs less than a block of shared memory
NONE_INLINE = 0
ALL_INLINE = sys.maxsize
_SPARED = 64 * 1024  # picklers that wrote more than this are dropped: their memo tables have grown large
_MOST_INLINE = 1 << 20  # a longer pickle of a message with arrays becomes an array itself
# First byte of a payload that is not just a pickle; a pickle of this protocol begins with neither.
_HEADED = b"\x01"  # the number of arrays before the buffers follows, then the pickle
_ALONE = b"\x02"  # the number of the reader follows
_OUTSIDE = b"\x03"  # the first tensor is the payload
_HEAD = struct.Struct("<I")

Reducer = Callable[[Any], Any]
reducers: dict[type, Reducer] = {}
# Libraries whose arrays travel as tensors, and the module with their reducers, which is imported after the library.
_awaited = {
    "numpy": "drover._arrays",
    "torch": "drover.torch",
    "cupy": "drover.cupy",
    "jax": "drover._device_arrays",
    "numba.cuda": "drover._device_arrays",
    "tensorflow": "drover._tensorflow",
}

# An array that is the whole message needs no pickle if a tensor describes it completely. By type: adds it to the
# arrays and returns True, or returns False if it would not.
alone: dict[type, Callable[[Any, _core.Arrays], bool]] = {}
_ALONE_TORCH = _ALONE + b"\x01"
_readers: dict[int, Callable[[_core.Tensor], Any]] = {}


# The pickle, the arrays that it names by index, and its out-of-band buffers in order.
_Made = tuple[bytes, _core.Arrays, list[memoryview]]


class _Maker:
    """A reusable pickler: creating one costs more than most pickles do."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        self._parts: list[bytes] = []
        self.write = self._parts.append
        self.arrays = _core.Arrays()
        self._large: list[memoryview] = []
        self._pickler = kind(self, PROTOCOL, buffer_callback=self._is_inside)
        self._table: dict[type, Reducer] | None = None

    def _is_inside(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        if is_inline(raw.nbytes) and (raw.nbytes == 0 or _core.find_shared(_session.current(), raw) is None):
            return True  # what lies in shared memory is shared, however small it is
        self._large.append(raw)
        return False

    def make(self, thing: Any, table: dict[type, Reducer]) -> _Made:
        if self._table is not table:
            # Set on the base class: cloudpickle's subclass has a dispatch_table of its own, which would hide this
            # one.
            pickle.Pickler.dispatch_table.__set__(self._pickler, table)
            self._table = table
        try:
            self._pickler.dump(thing)
        except BaseException:
            # This object is part of a reference cycle and would keep the failed message until garbage collection.
            self.arrays.clear()
            self._large, self._parts[:] = [], []
            raise
        finally:
            self._pickler.clear_memo()
        parts, collected, large = self._parts, self.arrays, self._large
        payload = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if large or len(collected):
            # They are the message's from now on: this object may write another one before they are imported.
            self._large, self.arrays = [], _core.Arrays()
        return payload, collected, large


class _State:
    """The pickling state of a thread."""

    __slots__ = ("by_reference", "inline", "maker", "read", "spare", "undo")

    def __init__(self) -> None:
        self.maker: _Maker | None = None  # of the pickle in progress
        self.spare: _Maker | None = None  # idle, for the next pickle
        self.read: Sequence[_core.Tensor] | None = None  # tensors of the message that is being read
        self.undo: list[Callable[[], object]] = []  # to call if the pickle in progress is discarded
        self.by_reference = False  # whether the pickle in progress shares arrays instead of copying them
        self.inline = INLINE  # buffers that are smaller are copied into the pickle in progress

    def write_with(self, maker: _Maker | None) -> None:
        # First, since it keeps a pointer only: an exception of a signal handler may come in between.
        _core.set_writing(None if maker is None else maker.arrays, self.by_reference, self.inline)
        self.maker = maker

    def read_from(self, tensors: Sequence[_core.Tensor] | None) -> None:
        self.read = tensors
        _core.set_reading(tensors)


class _Undoable(bytes):
    """A payload whose pickling had side effects. Each message has its own: sends may begin while one is waiting."""

    undo: list[Callable[[], object]]


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = _State()


_local = _Local()
_MODES = ("value", "reference")
_mode_variable = "DROVER_SEND"  # which processes that are started later inherit
_settings: dict[str, str] = {}  # "mode", once it is known


def arrays() -> _core.Arrays:
    """Return the arrays of the pickle that this thread is writing, to add one; pass its index to `carried`."""
    maker = _local.state.maker
    if maker is None:
        raise pickle.PicklingError(
            "cannot pickle an array in shared memory: send it through a drover queue, pipe or task"
        )
    return maker.arrays


def is_by_reference() -> bool:
    """Return whether the pickle that this thread is writing shares arrays instead of copying them."""
    return _local.state.by_reference


def is_inline(size: int) -> bool:
    """Return whether a buffer of this size is copied into the pickle that this thread is writing."""
    return size < _local.state.inline


def is_lasting() -> bool:
    """Return whether the pickle that this thread is writing must not depend on memory of other libraries."""
    return _local.state.inline == NONE_INLINE


def send_mode() -> str:
    """Return how messages carry arrays of other libraries: by "value" or by "reference"."""
    if "mode" not in _settings:
        mode = os.environ.get(_mode_variable) or _MODES[0]
        if mode not in _MODES:
            raise InvalidArgument(
                f"{_mode_variable} is {mode!r} in process {os.getpid()}, which is not a way to send arrays",
                "set it to 'value' or 'reference', or unset it",
            )
        _settings["mode"] = mode
    return _settings["mode"]


def set_send_mode(mode: str) -> None:
    """Set how this process, and those that it starts from now on, send arrays of other libraries."""
    if mode not in _MODES:
        raise InvalidArgument(f"{mode!r} is not a way to send arrays", "pass 'value' or 'reference'")
    _settings["mode"] = os.environ[_mode_variable] = mode


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
    return carried, (arrays().add_tensor(tensor),)


reducers[_core.Tensor] = _reduce_tensor


class _Tables:
    """The dispatch tables of picklers: copyreg's and multiprocessing's entries, overridden by our own."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        # The table for plain pickles, and a place for the one with cloudpickle's entries beneath. Replaced as one.
        self._made: tuple[dict[type, Reducer], list[dict[type, Reducer]]] = {}, []

    @property
    def plain(self) -> dict[type, Reducer]:
        return self._made[0]

    def refresh(self) -> None:
        """Rebuild the tables if a reducer was registered. They are replaced, not changed: other threads use them."""
        if not _awaited.keys().isdisjoint(sys.modules.keys()):  # the views compare the fewer names
            _ask_libraries()
        seen = (len(sys.modules), len(copyreg.dispatch_table), len(ForkingPickler._extra_reducers), len(reducers))
        if seen != self._seen:
            standard = {**_unsendable.reducers(), **copyreg.dispatch_table, **ForkingPickler._extra_reducers}
            self._made = {**standard, **reducers}, []
            self._seen = seen

    def with_cloudpickle(self, own: dict[type, Reducer]) -> dict[type, Reducer]:
        plain, by_value = self._made
        if not by_value:
            by_value.append({**own, **plain})
        return by_value[0]


_tables = _Tables()


def _ask_libraries() -> None:
    """Get the reducers of libraries that were imported. A thread that comes second waits for the first."""
    for name, module in list(_awaited.items()):
        library = sys.modules.get(name)
        if library is None or _is_being_imported(library):
            continue
        try:
            ours = importlib.import_module(module)
            if _is_being_imported(ours):
                continue  # this thread is importing it further up the stack
            reducers.update(ours.reducers(name))
        except Exception as error:
            if _awaited.pop(name, None) is not None:
                warnings.warn(
                    f"arrays of {name} are pickled by the library itself, because this version is not supported: "
                    f"{error}",
                    stacklevel=2,
                )
        else:
            _awaited.pop(name, None)


def _is_being_imported(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _make(thing: Any) -> _Made:
    state = _local.state
    outer = state.maker
    maker = state.spare or _Maker(pickle.Pickler)
    state.spare = None  # in use: a reducer that pickles creates another one
    try:
        state.write_with(maker)
        made = maker.make(thing, _tables.plain)
    finally:
        state.write_with(outer)
    if len(made[0]) < _SPARED:
        state.spare = maker
    return made


def _make_by_value(thing: Any) -> _Made:
    from drover._by_value import Pickler  # noqa: PLC0415 (imports cloudpickle, only if needed)

    state = _local.state
    outer = state.maker
    maker = _Maker(Pickler)
    try:
        state.write_with(maker)
        return maker.make(thing, _tables.with_cloudpickle(Pickler._dispatch_table))
    finally:
        state.write_with(outer)


def dumps(thing: Any, inline: int = INLINE, by_reference: bool = False) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Return an object as bytes and tensors. Raises what pickling raises.

    Arrays outside of shared memory are copied, so that the message is a value of this moment and survives this
    process; with `by_reference` they are shared, if their library permits it. Those smaller than `inline` are copied
    into the bytes. With `NONE_INLINE` all lie in drover's memory, whatever the mode, so that the object lasts as long
    as the tensors.
    """
    if _core.is_plain(thing):
        return pickle.dumps(thing, PROTOCOL), ()
    _tables.refresh()
    is_shared = inline != NONE_INLINE and (by_reference or send_mode() == "reference")
    state = _local.state
    before = state.by_reference, state.inline, state.undo
    try:
        state.by_reference, state.inline, state.undo = is_shared, inline, []
        if (add := alone.get(type(thing))) is not None and add(thing, collector := _core.Arrays()):
            return _ALONE_TORCH, collector.take(_session.current(), is_shared)
        payload, tensors = _with_tensors(_make_by_either(thing), is_shared)
        if state.undo:
            payload = _Undoable(payload)
            payload.undo = state.undo
        return payload, tensors
    except BaseException as error:
        if state.undo is not before[2]:
            _discard(state)
            if state.maker is None:  # not part of another message
                with contextlib.suppress(OSError):  # too few descriptors to import it
                    importlib.import_module("drover._culprits").find(thing, error, _fails)
        raise
    finally:
        state.by_reference, state.inline, state.undo = before
        if state.maker is not None:  # a reducer sent something: the outer pickle goes on by its own rules
            state.write_with(state.maker)


def unsent(payload: bytes) -> None:
    """Undo the side effects of a `dumps` whose payload was not sent after all."""
    for call in getattr(payload, "undo", ()):
        call()


def _make_by_either(thing: Any) -> _Made:
    """Pickle by reference if possible, otherwise by value."""
    is_second_best = False
    try:
        made = _make(thing)
        if b"__main__" not in made[0] or _main_module.are_known_to_children(made[0]):
            return made
        made[1].clear()
        is_second_best = _main_module.is_imported_by_children()
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    _discard(_local.state)
    try:
        return _make_by_value(thing)
    except Exception:
        if not is_second_best:
            raise
        return _make(thing)  # what the children lack may be a value that they do not use


def _fails(part: Any) -> bool:
    """Return whether a part of an object cannot be pickled either. Leaves nothing behind."""
    try:
        if not _core.is_plain(part):
            _make_by_either(part)[1].clear()
    except Exception:
        return True
    finally:
        _discard(_local.state)
    return False


def _discard(state: _State) -> None:
    for call in state.undo:
        call()
    state.undo.clear()


def _with_tensors(made: _Made, by_reference: bool) -> tuple[bytes, Sequence[_core.Tensor]]:
    payload, collected, large = made
    count = len(collected)
    if not count and not large:
        return payload, ()
    for raw in large:
        collected.add_buffer(raw)
    if count:
        payload = _HEADED + _HEAD.pack(count) + payload
    tensors = collected.take(_session.current(), by_reference)
    if len(payload) <= _MOST_INLINE:
        return payload, tensors
    return _OUTSIDE, [_core.copied(_session.current(), payload), *tensors]


def loads(payload: Any, tensors: Sequence[_core.Tensor] = ()) -> Any:
    """Rebuild an object. Its arrays are views of the shared memory that came with the message."""
    if not tensors:
        return pickle.loads(payload)
    view = memoryview(payload)
    if view[0] == _OUTSIDE[0]:
        view, tensors = memoryview(tensors[0]), tensors[1:]
    if view[0] == _ALONE[0]:
        return _reader(view[1])(tensors[0])
    if view[0] != _HEADED[0]:
        return pickle.loads(view, buffers=tensors)
    (count,) = _HEAD.unpack_from(view, 1)
    state = _local.state
    outer = state.read
    try:
        state.read_from(tensors)
        return pickle.loads(view[1 + _HEAD.size :], buffers=tensors[count:])
    finally:
        state.read_from(outer)


def _reader(number: int) -> Callable[[_core.Tensor], Any]:
    if number not in _readers:
        if number != _ALONE_TORCH[1]:
            raise pickle.UnpicklingError(
                f"cannot read an array of library {number}: the sender uses a newer version of drover"
            )
        _readers[number] = importlib.import_module("drover.torch").opened
    return _readers[number]
