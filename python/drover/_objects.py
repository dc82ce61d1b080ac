"""Python objects as bytes and tensors: pickles, with large buffers beside them in shared memory."""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import threading
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from drover import _core, _main_module, _session

__all__ = ["dumps", "loads", "reducers"]

PROTOCOL = 5
_INLINE = 16 * 1024  # buffers below this are copied with the pickle, which costs less than a block
_MOST_TENSORS = 32
_PLAIN = frozenset({int, float, bool, str, bytes, type(None), complex})
_HEADED = b"\x01"  # a pickle of this protocol begins with another byte
_HEAD = struct.Struct("<II")
_ALIGNMENT = 64

Buffer = pickle.PickleBuffer
reducers: dict[type, Callable[[Any], Any]] = {}


class _Collected(threading.local):
    """What the pickle that this thread makes, or reads, has beside its bytes."""

    tensors: list[_core.Tensor] | None = None


_collected = _Collected()


def _reduce_tensor(tensor: _core.Tensor) -> tuple[Callable[[int], Any], tuple[int]]:
    if _collected.tensors is None:
        raise pickle.PicklingError("a tensor of drover travels through queues and tasks only, not through pickle alone")
    _collected.tensors.append(tensor)
    return _tensor_at, (len(_collected.tensors) - 1,)


def _tensor_at(index: int) -> Any:
    if _collected.tensors is None:
        raise pickle.UnpicklingError("a tensor of drover was read outside of its message")
    return _collected.tensors[index]


reducers[_core.Tensor] = _reduce_tensor


def _table() -> dict[type, Callable[[Any], Any]]:
    return {**copyreg.dispatch_table, **ForkingPickler._extra_reducers, **reducers}


def _dump(make: Callable[..., Any], thing: Any) -> tuple[bytes, list[_core.Tensor], list[memoryview]]:
    file = io.BytesIO()
    large: list[memoryview] = []

    def beside(buffer: Buffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        if raw.nbytes < _INLINE:
            return True
        large.append(raw)
        return False

    tensors: list[_core.Tensor] = []
    before, _collected.tensors = _collected.tensors, tensors
    try:
        pickler = make(file, PROTOCOL, buffer_callback=beside)
        pickler.dispatch_table = _table()
        pickler.dump(thing)
    finally:
        _collected.tensors = before
    return file.getvalue(), tensors, large


def _by_value(thing: Any) -> tuple[bytes, list[_core.Tensor], list[memoryview]]:
    import cloudpickle  # noqa: PLC0415 (only programs that need it pay for it)

    def make(*args: Any, **kwargs: Any) -> Any:
        return cloudpickle.Pickler(*args, **kwargs)

    return _dump(make, thing)


def dumps(thing: Any) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Turn an object into bytes and what goes with them. Raises what pickle raises, here and now."""
    if type(thing) in _PLAIN:
        return pickle.dumps(thing, PROTOCOL), ()
    try:
        payload, tensors, large = _dump(pickle.Pickler, thing)
        if b"__main__" in payload and not _main_module.is_imported_by_children():
            payload, tensors, large = _by_value(thing)
    except (pickle.PicklingError, AttributeError, TypeError):
        payload, tensors, large = _by_value(thing)
    if not tensors and len(large) <= _MOST_TENSORS:
        return payload, [_share(raw) for raw in large]
    if len(tensors) + len(large) <= _MOST_TENSORS:
        return _head(len(tensors), ()) + payload, [*tensors, *map(_share, large)]
    return _head(len(tensors), [raw.nbytes for raw in large]) + payload, [*tensors, _joined(large)]


def _share(raw: memoryview) -> _core.Tensor:
    return _core.find_shared(raw) or _core.copied(_session.current(), raw)


def _head(tensors: int, sizes: Sequence[int]) -> bytes:
    """Say how many tensors come before the buffers, and of what sizes those are that were joined."""
    return _HEADED + _HEAD.pack(tensors, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _joined(large: list[memoryview]) -> _core.Tensor:
    """Put buffers that are too many for one message behind each other."""
    whole = _core.empty(_session.current(), "uint8", [sum(_aligned(raw.nbytes) for raw in large)])
    target = memoryview(whole)
    begin = 0
    for raw in large:
        target[begin : begin + raw.nbytes] = raw
        begin += _aligned(raw.nbytes)
    return whole


def _cut(whole: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    parts = []
    begin = 0
    for size in sizes:
        parts.append(whole[begin : begin + size])
        begin += _aligned(size)
    return parts


def loads(payload: Any, tensors: Sequence[_core.Tensor] = ()) -> Any:
    """Make the object again. Arrays are views on the shared memory that came with the message."""
    if not tensors:
        return pickle.loads(payload)
    view = memoryview(payload)
    if view[0] != _HEADED[0]:
        return pickle.loads(payload, buffers=tensors)
    given, count = _HEAD.unpack_from(view, 1)
    end = 1 + _HEAD.size + 8 * count
    sizes = struct.unpack_from(f"<{count}Q", view, 1 + _HEAD.size)
    buffers = _cut(memoryview(tensors[-1]), sizes) if count else tensors[given:]
    before, _collected.tensors = _collected.tensors, list(tensors)
    try:
        return pickle.loads(view[end:], buffers=buffers)
    finally:
        _collected.tensors = before
