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

_MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation
_pools: list[Any] = []  # the one in slabs, once CuPy uses it


def use_slabs(cached_bytes: int | None = None) -> None:
    """Make CuPy allocate GPU memory from drover's slabs in this process, from now on.

    Arrays created afterwards are sent to other processes without a copy and survive the death of this process. CuPy
    still uses a memory pool, which `cupy.get_default_memory_pool()` returns, with its cache, limit and statistics;
    only its memory comes from slabs. While others have an array that was sent, CuPy does not reuse its memory. Arrays
    from before are sent by a copy, and stay in the old pool.

    CuPy's pool keeps its free memory for itself. To let drover keep some as well, after
    `cupy.get_default_memory_pool().free_all_blocks()`, set `cached_bytes`, a limit for each GPU. Raises Unsupported
    without a CUDA device.
    """
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise _no_cuda(str(error)) from error
    if count == 0:
        raise _no_cuda("no device was found")
    if _pools:
        return
    _core.use_slabs(_session.current(), "cuda", cached_bytes, is_divided=True)
    source = cupy.cuda.PythonFunctionAllocator(_allocate, _free)
    pool = cupy.cuda.MemoryPool(source.malloc)
    _pools.append(pool)
    if hasattr(cupy, "_default_memory_pool"):
        limits = _limits(cupy._default_memory_pool, count)
        cupy._default_memory_pool = pool  # what cupy.get_default_memory_pool() returns
        for device, limit in enumerate(limits):
            with cupy.cuda.Device(device):
                pool.set_limit(size=limit)
    cupy.cuda.set_allocator(pool.malloc)


def empty_cache() -> None:
    """Free the GPU memory that CuPy's pool and drover cache, and that nobody uses."""
    _core.trim_memory(_session.current())
    for pool in _pools:
        pool.free_all_blocks()
    _core.empty_slabs_cache()
    _core.trim_memory(_session.current())


def memory_usage(device: int | None = None) -> dict[str, int]:
    """Return counts of the memory of `use_slabs`, shared with torch; see `drover.torch.memory_usage`."""
    return _core.slabs_usage(device)


def _no_cuda(reason: str) -> Unsupported:
    return Unsupported(
        f"CuPy {cupy.__version__} cannot use CUDA: {reason}",
        "run `drover doctor`, and install a CuPy that fits the driver",
    )


def _limits(pool: Any, count: int) -> list[int]:
    limits = []
    for device in range(count):
        with cupy.cuda.Device(device):
            limits.append(pool.get_limit())
    return limits


def _allocate(size: int, device: int) -> int:
    address = _core.slabs_allocate_divided(size, device)
    if address == 0:  # the pool then frees what it caches, and asks again or raises OutOfMemoryError
        raise cupy.cuda.runtime.CUDARuntimeError(_MEMORY_ALLOCATION)
    return address


def _free(
    address: int,
    device: int,
    free: Any = _core.slabs_free_divided,
    on_device: Any = cupy.cuda.Device,
    synchronize: Any = cupy.cuda.runtime.deviceSynchronize,
) -> None:
    # Runs until the interpreter's end, when globals are gone. As cudaFree, it waits for all streams of the device.
    with on_device(device):
        synchronize()
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


extend()  # last, so that an import that fails changes nothing
