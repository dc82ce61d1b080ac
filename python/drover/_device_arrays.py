"""Sends device arrays of JAX, Numba and registered libraries as tensors; they stay on their device."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

from drover import _core, _objects
from drover._errors import Unsupported

__all__ = ["capsule_of", "interface_of", "reducers", "register_array"]


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Return the reducer for the arrays of "jax" or "numba.cuda"."""
    if library == "jax":
        from jax._src.array import ArrayImpl  # noqa: PLC0415 (the class of all JAX arrays)

        return {ArrayImpl: _reduce_jax}
    from numba.cuda.cudadrv.devicearray import DeviceNDArray  # noqa: PLC0415

    return {DeviceNDArray: _reduce_numba}


def register_array(kind: type, rebuild: Callable[[Any], Any]) -> None:
    """Send the arrays of an unknown library as tensors, without a pickle of their elements.

    `kind` is the type of the arrays, which must have `__dlpack__` and `__dlpack_device__`, or
    `__cuda_array_interface__`. `rebuild` is sent along with each array and turns an object with `__dlpack__` into one
    of the library; usually it is the library's `from_dlpack`.
    """
    _objects.reducers[kind] = functools.partial(_reduce_registered, rebuild)
    _objects.alone.pop(kind, None)


def _reduce_registered(rebuild: Callable[[Any], Any], array: Any) -> Any:
    if hasattr(array, "__dlpack__"):
        # The library makes the default stream wait for its work; receivers wait for the default stream.
        stream = 1 if array.__dlpack_device__()[0] == _CUDA else None
        capsule = array.__dlpack__(stream=stream)
    else:
        interface = array.__cuda_array_interface__
        stream = interface.get("stream")
        capsule = capsule_of(interface, array, (_CUDA, _device_of(interface["data"][0])))
    return _rebuild_registered, (rebuild, _objects.arrays().add_capsule(capsule, stream))


def _rebuild_registered(rebuild: Callable[[Any], Any], number: int) -> Any:
    return rebuild(_objects.carried(number))


def _device_of(address: int) -> int:
    """Return the device that owns an address. The driver is loaded, since there is device memory."""
    index = ctypes.c_int()
    failed = ctypes.CDLL(_core.environment_path("DROVER_LIBCUDA") or "libcuda.so.1").cuPointerGetAttribute(
        ctypes.byref(index), _DEVICE_ORDINAL, ctypes.c_uint64(address)
    )
    if failed:
        raise Unsupported(f"the driver finds no device memory at {address:#x} (error {failed})", "send a copy")
    return index.value


def _reduce_jax(array: Any) -> Any:
    devices = array.devices()
    if array.size == 0 or len(devices) != 1 or next(iter(devices)).platform not in ("gpu", "cuda"):
        return array.__reduce__()
    # JAX does not expose its streams, so wait until the array is ready.
    return _rebuild_jax, (_objects.arrays().add_capsule(array.block_until_ready().__dlpack__(), None, is_known=True),)


def _rebuild_jax(number: int) -> Any:
    import jax.dlpack  # noqa: PLC0415

    return jax.dlpack.from_dlpack(_objects.carried(number))


def _reduce_numba(array: Any) -> Any:
    interface = array.__cuda_array_interface__
    if array.size == 0 or any(stride < 0 for stride in array.strides):
        return _copied_numba, (array.copy_to_host(),)
    capsule = capsule_of(interface, array, (_CUDA, _device_of(interface["data"][0])))
    # Without a stream in the interface, work of the default stream may be in flight.
    number = _objects.arrays().add_capsule(capsule, interface.get("stream") or 1, is_known=True)
    return _rebuild_numba, (number, array.dtype.str)


def _copied_numba(host: Any) -> Any:
    from numba import cuda  # noqa: PLC0415

    return cuda.to_device(host)


def _rebuild_numba(number: int, dtype: str) -> Any:
    from numba import cuda  # noqa: PLC0415

    return cuda.as_cuda_array(_Received(_objects.carried(number), dtype))


class _Received:
    """Wraps a tensor for libraries that read `__cuda_array_interface__`."""

    def __init__(self, tensor: _core.Tensor, dtype: str) -> None:
        self.__cuda_array_interface__ = interface_of(tensor, dtype)
        self._tensor = tensor


# The structures of DLPack before 1.0, which every library can read.
_CPU, _CUDA = 1, 2
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (("array", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_NAME = b"dltensor"
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
# Exported arrays by the address of their structure, until the consumer calls the deleter.
_exported: dict[int, tuple[Any, ...]] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address: int) -> None:
    _exported.pop(address, None)


def capsule_of(interface: dict[str, Any], owner: Any, device: tuple[int, int]) -> Any:
    """Create a DLPack capsule from a `__cuda_array_interface__`; its consumer keeps `owner` alive.

    The capsule has no destructor, so it must be consumed.
    """
    shape = interface["shape"]
    kind, size = interface["typestr"][1], int(interface["typestr"][2:])
    steps = interface.get("strides")
    strides = [step // size for step in steps] if steps else [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))(*strides)
    managed = _DLManagedTensor(
        _DLTensor(interface["data"][0], *device, len(shape), _KINDS[kind], 8 * size, 1, sizes, steps, 0),
        None,
        ctypes.cast(_delete, ctypes.c_void_p),
    )
    address = ctypes.addressof(managed)
    _exported[address] = (managed, sizes, steps, owner)
    return _new_capsule(address, _NAME, None)


def interface_of(tensor: _core.Tensor, dtype: str) -> dict[str, Any]:
    """Return the `__cuda_array_interface__` of a tensor. The default stream waits for work on the tensor."""
    capsule = tensor.__dlpack__(stream=1 if tensor.__dlpack_device__()[0] == _CUDA else None)
    array = _DLManagedTensor.from_address(_pointer_of(capsule, _NAME)).array
    size = array.bits // 8
    return {
        "shape": tuple(array.shape[: array.ndim]),
        "strides": tuple(step * size for step in array.strides[: array.ndim]) if array.strides else None,
        "typestr": dtype,
        "data": (array.data + array.byte_offset, False),
        "stream": 1,
        "version": 3,
    }
