"""CuPy arrays, and structures of them, moved into shared memory on purpose."""

from __future__ import annotations

import math
from typing import Any

import cupy

from drover import _core, _session, _sharing

__all__ = ["extend", "share"]


def share(thing: Any) -> Any:
    """Move all arrays in a structure into shared memory, once; return the structure.

    The structure is a CuPy array, or any nesting of arrays in dicts, lists, tuples, sets and dataclasses. Arrays stay
    on their device. CuPy's arrays cannot be moved in place, so dicts, lists and dataclasses get new ones, and tuples
    and lone arrays are returned anew; arrays of the structure that shared memory still do. Afterwards all processes
    that get the structure see the same elements, and the memory lasts as long as any of them uses it. What is in
    shared memory already stays where it is.

    Numpy arrays are moved too, and torch's tensors if the program has imported `drover.torch`.
    """
    return _sharing.share(thing)


def extend() -> None:
    """Make `drover.torch.share` and `share` move CuPy's arrays."""
    _sharing.movers[cupy.ndarray] = _move


def _move(walk: Any, array: cupy.ndarray) -> cupy.ndarray:
    if array.size == 0 or array.dtype.hasobject or _is_shared(array):
        return array
    memory = array.data.mem
    begin, size = (memory.ptr, memory.size) if memory.size else (array.data.ptr, 0)
    if not begin <= array.data.ptr < begin + size:  # memory of another library, of unknown size
        return _copied(array)
    key = "cupy", array.device.id, begin, size
    with array.device:
        if key not in walk.memories:
            walk.memories[key] = made = _empty(size, array.device.id)
            made.data.copy_from_device_async(cupy.cuda.MemoryPointer(memory, 0), size, cupy.cuda.get_current_stream())
        place = walk.memories[key].data + (array.data.ptr - begin)
        return cupy.ndarray(array.shape, array.dtype, place, strides=array.strides)


def _copied(array: cupy.ndarray) -> cupy.ndarray:
    with array.device:
        place = _empty(math.prod(array.shape) * array.itemsize, array.device.id).data
        made = cupy.ndarray(array.shape, array.dtype, place)
        made[...] = array
        return made


def _empty(size: int, device: int) -> cupy.ndarray:
    return cupy.from_dlpack(_core.empty(_session.current(), "uint8", [size], f"cuda:{device}"))


def _is_shared(array: cupy.ndarray) -> bool:
    return _core.find_on_device(_session.current(), array.data.ptr, 1, array.device.id) is not None
