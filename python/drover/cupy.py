"""CuPy arrays in slabs, and how CuPy arrays are sent: as tensors; they stay on their device.

Importing this module imports CuPy. Sending does not need that import: drover notices when a program has imported
CuPy.
"""

from __future__ import annotations

from typing import Any

import cupy

from drover import _core, _objects, _session
from drover._cupy_share import extend, share
from drover._errors import Unsupported

__all__ = ["empty_cache", "memory_usage", "share", "use_slabs"]

extend()

_PER_THREAD = 2  # cudaStreamPerThread
# Every stream that has allocated memory: freed memory is reused in its stream, which must not be destroyed before.
_streams: dict[int, Any] = {}


def use_slabs(cached_bytes: int | None = None) -> None:
    """Make CuPy allocate GPU memory from drover's slabs in this process, from now on.

    Arrays created afterwards are sent to other processes without a copy and survive the death of this process. Freed
    memory is cached for later arrays of the same stream: at most `cached_bytes` on each GPU, by default an eighth of
    its memory.

    CuPy's own pool is no longer used, so its limits and statistics do not apply; see `memory_usage`. Raises
    Unsupported without a CUDA device.
    """
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise _no_cuda(str(error)) from error
    if count == 0:
        raise _no_cuda("no device was found")
    _core.use_slabs(_session.current(), "cuda", cached_bytes)
    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(_allocate, _free).malloc)


def empty_cache() -> None:
    """Free the cached GPU memory of `use_slabs`."""
    _core.empty_slabs_cache()


def memory_usage(device: int | None = None) -> dict[str, int]:
    """Return counts of the memory of `use_slabs`, shared with torch; see `drover.torch.memory_usage`."""
    return _core.slabs_usage(device)


def _no_cuda(reason: str) -> Unsupported:
    return Unsupported(
        f"CuPy {cupy.__version__} cannot use CUDA: {reason}",
        "run `drover doctor`, and install a CuPy that fits the driver",
    )


def _allocate(size: int, device: int) -> int:
    stream = cupy.cuda.get_current_stream()
    if stream.ptr == _PER_THREAD:
        raise Unsupported(
            "drover.cupy.use_slabs() does not support CuPy's per-thread default stream, which all threads name alike",
            "unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM, or use explicit streams",
        )
    _streams.setdefault(stream.ptr, stream)
    return _core.slabs_allocate(size, device, stream.ptr)


def _free(address: int, device: int, free: Any = _core.slabs_free) -> None:
    # Runs until the interpreter's end, when globals are gone. The memory belongs to the stream that allocated it.
    del device
    free(address)


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Return the reducer for CuPy arrays."""
    del library
    return {cupy.ndarray: _reduce}


def _reduce(array: cupy.ndarray) -> Any:
    if array.size == 0:
        return _empty, (array.shape, array.dtype.str)
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = cupy.ascontiguousarray(array)  # DLPack has no negative or fractional strides
    with array.device:
        stream = cupy.cuda.get_current_stream().ptr
        capsule = array.view(_bytes_like(array.dtype)).__dlpack__(stream=-1)
        number = _objects.arrays().add_capsule(capsule, stream, is_known=True)
    return _rebuild, (number, array.dtype.str)


def _bytes_like(dtype: Any) -> str:
    """Return a dtype of the same size that every version of DLPack supports."""
    return "u1" if dtype.kind == "b" else dtype.str


def _rebuild(number: int, dtype: str) -> cupy.ndarray:
    """Open a received array. The current stream waits for the sender's work."""
    return cupy.from_dlpack(_objects.carried(number)).view(dtype)


def _empty(shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
    return cupy.empty(shape, dtype)
