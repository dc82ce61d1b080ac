"""Numpy arrays in shared memory, and how numpy arrays of any kind are sent."""

from __future__ import annotations

import pickle
import sys
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
        import numpy  # noqa: PLC0415 (only needed by programs that use arrays)
    except ImportError:
        raise Unsupported("numpy is not installed, and drover's arrays need it", "pip install numpy") from None
    return numpy


def _in_slab(shape: Any, dtype: DTypeLike, is_zeroed: bool) -> numpy.ndarray:
    np = _numpy()
    made = np.dtype(dtype)
    if made.hasobject:
        raise InvalidArgument(
            f"dtype {made} contains Python objects, which cannot be placed in shared memory",
            "use a numeric or structured dtype, or send the objects through a queue",
        )
    sizes = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    # Lets numpy validate the shape and count its elements, without allocating.
    count = np.broadcast_to(np.empty((), np.uint8), sizes).size
    if count * made.itemsize == 0:
        return np.zeros(sizes, made)
    tensor = _core.empty(_session.current(), "uint8", [count * made.itemsize], "cpu", is_zeroed)
    # frombuffer holds the buffer, which is how a later send recognises the array as shared.
    return np.ndarray(sizes, made, np.frombuffer(tensor, np.uint8))


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = float) -> numpy.ndarray:
    """Create an uninitialised array in shared memory.

    Sending the array to another process, or passing it to one, does not copy it: both processes see the same
    elements, and each sees what the other writes. The memory is freed when the last process drops it.

    Raises InvalidArgument for a dtype that contains Python objects.

    >>> import drover
    >>> shared = drover.empty((2, 3), dtype="float32")
    >>> shared[:] = 1
    >>> def double(array):
    ...     array *= 2
    >>> process = drover.Process(target=double, args=(shared,))
    >>> process.start()
    >>> process.join()
    >>> float(shared.sum())
    12.0
    """
    return _in_slab(shape, dtype, is_zeroed=False)


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = float) -> numpy.ndarray:
    """Create an array of zeros in shared memory; see `empty`."""
    return _in_slab(shape, dtype, is_zeroed=True)


def array(like: ArrayLike, dtype: DTypeLike | None = None) -> numpy.ndarray:
    """Copy an array, or anything `numpy.asarray` accepts, into shared memory; see `empty`."""
    np = _numpy()
    source = np.asarray(like, dtype)
    if source.flags.c_contiguous and source.nbytes and not source.dtype.hasobject and type(source) is np.ndarray:
        # The kernel writes to fresh pages faster than numpy does.
        made = _core.copied(_session.current(), source.reshape(-1).view("u1"))
        return np.ndarray(source.shape, source.dtype, np.frombuffer(made, np.uint8))
    made = _in_slab(source.shape, source.dtype, is_zeroed=False)
    made[...] = source
    return made


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Return the reducer for numpy arrays."""
    del library
    return {_numpy().ndarray: _reduce}


def _reduce(array: numpy.ndarray) -> Any:
    """Reduce an array to a buffer where numpy's own reduction would copy its bytes.

    numpy hands out buffers only for contiguous arrays of basic types; this also covers strided views and datetimes.
    """
    flags = array.flags
    if array.nbytes == 0 or array.dtype.hasobject:
        return array.__reduce_ex__(_objects.PROTOCOL)
    if array.base is not None and (storage := _shared_storage_of(array)) is not None:
        offset = array.ctypes.data - storage.data_ptr()
        return _view_of_storage, (storage, _type(array.dtype), array.shape, array.strides, offset)
    if flags.c_contiguous:
        return _rebuild, (_buffer(array), _type(array.dtype), array.shape)
    if flags.f_contiguous:
        return _rebuild, (_buffer(array.T), _type(array.dtype), array.shape, None, 0)
    return _reduce_strided(array)


def _owner_of(array: numpy.ndarray) -> numpy.ndarray:
    owner = base = array
    while base is not None:
        if isinstance(base, type(array)):
            owner = base
        elif type(base).__name__ != "DummyArray":  # which numpy puts between a window and its array
            break
        base = base.base
    return owner


def _shared_storage_of(array: numpy.ndarray) -> Any:
    """Return the storage of the torch tensor that the array is a view of, if it lies in torch's shared memory."""
    base, kind = _owner_of(array).base, getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None or not isinstance(base, kind):
        return None
    storage = base.untyped_storage()
    return storage if storage.is_shared() else None


def _view_of_storage(storage: Any, dtype: Any, shape: tuple[int, ...], strides: Any, offset: int) -> numpy.ndarray:
    import torch  # noqa: PLC0415 (the sender had it too)

    flat = torch.empty(0, dtype=torch.uint8).set_(storage)
    return _numpy().ndarray(shape, dtype, flat.numpy(), offset, strides)


def _type(dtype: numpy.dtype) -> Any:
    """Return the dtype as it is sent: built-in ones as a short string, which is read faster than a pickle."""
    return dtype.str if dtype.isbuiltin == 1 else dtype


def _buffer(array: numpy.ndarray) -> pickle.PickleBuffer:
    try:
        return pickle.PickleBuffer(array)
    except (BufferError, ValueError):  # the dtype has no buffer format, but its bytes do
        return pickle.PickleBuffer(array.reshape(-1).view("u1"))


def _reduce_strided(array: numpy.ndarray) -> Any:
    whole, offset = _span(array)
    if whole is None:
        return _reduce(array.copy(order="C"))
    # Views that repeat elements, such as broadcast ones, are read-only: no one can tell that they still do.
    is_repeated = not array.flags.writeable and whole.nbytes < array.nbytes
    if not is_repeated and _core.find_shared(_session.current(), whole) is None:
        return _reduce(array.copy(order="C"))
    whole.flags.writeable = array.flags.writeable
    return _rebuild, (pickle.PickleBuffer(whole), array.dtype, array.shape, array.strides, offset)


def _span(array: numpy.ndarray) -> tuple[numpy.ndarray | None, int]:
    """Return the bytes from the first to the last element, and the offset of the array in them."""
    owner = _owner_of(array)
    if not owner.flags.c_contiguous or owner.dtype.hasobject:
        return None, 0
    flat = owner.reshape(-1).view("u1")
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    before = sum(step for step in steps if step < 0)
    after = sum(step for step in steps if step > 0) + array.itemsize
    begin = array.ctypes.data - flat.ctypes.data + before
    if begin < 0 or begin + after - before > flat.nbytes:
        return None, 0  # as_strided checks no bounds
    return flat[begin : begin + after - before], -before


def _rebuild(buffer: Any, dtype: Any, shape: tuple[int, ...], strides: Any = False, offset: int = 0) -> numpy.ndarray:
    """Rebuild the array: C order by default, Fortran order if `strides` is None, otherwise with these strides."""
    np = _numpy()
    if strides is False:
        return np.frombuffer(buffer, dtype).reshape(shape)
    if strides is None:
        return np.frombuffer(buffer, dtype).reshape(shape, order="F")
    return np.ndarray(shape, dtype, np.frombuffer(buffer, np.uint8), offset, strides)
