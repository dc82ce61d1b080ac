"""Arrays of numpy in shared memory, and how all arrays of numpy travel."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import TYPE_CHECKING, Any

from drover import _core, _objects, _session
from drover._errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    import numpy
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["array", "empty", "zeros"]

Shape = "int | tuple[int, ...]"


def _numpy() -> ModuleType:
    try:
        import numpy  # noqa: PLC0415 (only programs that use arrays need it)
    except ImportError:
        raise Unsupported("numpy is not installed, and arrays are numpy's", "pip install numpy") from None
    return numpy


def _in_slab(shape: Any, dtype: DTypeLike, is_zeroed: bool) -> numpy.ndarray:
    np = _numpy()
    made = np.dtype(dtype)
    if made.hasobject:
        raise InvalidArgument(
            f"an array of {made} has Python objects, which live in one process only",
            "use numbers, or a structured dtype; objects themselves can be sent through a queue",
        )
    sizes = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    # Counted by numpy, with its errors for what is no shape; without memory.
    count = np.broadcast_to(np.empty((), np.uint8), sizes).size
    if count * made.itemsize == 0:
        return np.zeros(sizes, made)
    tensor = _core.empty(_session.current(), "uint8", [count * made.itemsize], "cpu", is_zeroed)
    # By way of frombuffer, which holds the buffer: so the array is found to be shared when it is sent.
    return np.ndarray(sizes, made, np.frombuffer(tensor, np.uint8))


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = float) -> numpy.ndarray:
    """Make an array in shared memory, with any contents.

    Sent to another process, or passed to one, it is not copied: both have the same elements, and what one writes the
    other sees. It lives until nobody has it any more.
    """
    return _in_slab(shape, dtype, is_zeroed=False)


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = float) -> numpy.ndarray:
    """Make an array of zeros in shared memory; see `empty`."""
    return _in_slab(shape, dtype, is_zeroed=True)


def array(like: ArrayLike, dtype: DTypeLike = None) -> numpy.ndarray:
    """Copy an array, or anything that numpy makes one of, into shared memory; see `empty`."""
    np = _numpy()
    source = np.asarray(like, dtype)
    if source.flags.c_contiguous and source.nbytes and not source.dtype.hasobject and type(source) is np.ndarray:
        # Into new pages the system copies faster than numpy does.
        made = _core.copied(_session.current(), source.reshape(-1).view("u1"))
        return np.ndarray(source.shape, source.dtype, np.frombuffer(made, np.uint8))
    made = _in_slab(source.shape, source.dtype, is_zeroed=False)
    made[...] = source
    return made


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Say how arrays travel."""
    del library
    return {_numpy().ndarray: _reduce}


def _reduce(array: numpy.ndarray) -> Any:
    """Give what is sent: a buffer where numpy would copy bytes.

    numpy itself gives buffers of arrays whose elements lie in a row, of types that other languages know. What is left
    are views with gaps, and times.
    """
    flags = array.flags
    if array.nbytes == 0 or array.dtype.hasobject:
        return array.__reduce_ex__(_objects.PROTOCOL)
    if flags.c_contiguous:
        return _rebuild, (_buffer(array), _type(array.dtype), array.shape)
    if flags.f_contiguous:
        return _rebuild, (_buffer(array.T), _type(array.dtype), array.shape, None, 0)
    return _reduce_strided(array)


def _type(dtype: numpy.dtype) -> Any:
    """Name a type: for those of numpy itself a short text, which is read faster than a pickle."""
    return dtype.str if dtype.isbuiltin == 1 else dtype


def _buffer(array: numpy.ndarray) -> pickle.PickleBuffer:
    try:
        return pickle.PickleBuffer(array)
    except (BufferError, ValueError):  # of a type without a letter; its bytes have one
        return pickle.PickleBuffer(array.reshape(-1).view("u1"))


def _reduce_strided(array: numpy.ndarray) -> Any:
    whole, offset = _span(array)
    if whole is None or _core.find_shared(whole) is None:
        return _reduce(array.copy(order="C"))
    return _rebuild, (pickle.PickleBuffer(whole), array.dtype, array.shape, array.strides, offset)


def _span(array: numpy.ndarray) -> tuple[numpy.ndarray | None, int]:
    """Give the bytes from the first to the last element, and where the array begins in them."""
    owner = array
    while isinstance(owner.base, type(array)):
        owner = owner.base
    if not owner.flags.c_contiguous or owner.dtype.hasobject:
        return None, 0
    flat = owner.reshape(-1).view("u1")
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    before = sum(step for step in steps if step < 0)
    after = sum(step for step in steps if step > 0) + array.itemsize
    begin = array.ctypes.data - flat.ctypes.data + before
    return flat[begin : begin + after - before], -before


def _rebuild(buffer: Any, dtype: Any, shape: tuple[int, ...], strides: Any = False, offset: int = 0) -> numpy.ndarray:
    """Make the array again: row after row, column after column if strides are None, or with gaps."""
    np = _numpy()
    if strides is False:
        return np.frombuffer(buffer, dtype).reshape(shape)
    if strides is None:
        return np.frombuffer(buffer, dtype).reshape(shape, order="F")
    return np.ndarray(shape, dtype, np.frombuffer(buffer, np.uint8), offset, strides)
