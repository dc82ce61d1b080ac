"""How arrays of CuPy travel: by handle, on their device.

`import drover.cupy` imports CuPy. Nobody needs to: drover looks whether CuPy is there when something is sent.
"""

from __future__ import annotations

from typing import Any

import cupy

from drover import _core, _objects, _session
from drover._errors import Unsupported

__all__ = ["empty_cache", "memory_usage", "use_slabs"]

_PER_THREAD = 2  # CUDA's number of it
# Those that memory was made in: it is used again in the same stream, which must not end before.
_streams: dict[int, Any] = {}


def use_slabs(cached_bytes: int | None = None) -> None:
    """Let CuPy take its memory on GPUs from drover's slabs, in this process, from now on.

    Every array that is made afterwards is handed to other processes by a lease, without a copy, and stays when this
    process dies. Freed memory is kept for the next arrays of the same stream, at most `cached_bytes` on each GPU: an
    eighth of its memory unless given.

    CuPy's own pool is not used any more, and its limits and figures mean nothing then; see `memory_usage`.
    """
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise _no_cuda(str(error)) from error
    if count == 0:
        raise _no_cuda("it finds no device")
    _core.use_slabs(_session.current(), "cuda", cached_bytes)
    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(_allocate, _free).malloc)


def empty_cache() -> None:
    """Give back the GPU memory that was freed, and is kept for the next arrays, after `use_slabs`."""
    _core.empty_slabs_cache()


def memory_usage(device: int | None = None) -> dict[str, int]:
    """Count what was allocated after `use_slabs`; as `drover.torch.memory_usage`, and together with torch."""
    return _core.slabs_usage(device)


def _no_cuda(reason: str) -> Unsupported:
    return Unsupported(
        f"CuPy {cupy.__version__} has no CUDA here: {reason}",
        "see what `drover doctor` says, and install a CuPy for this driver",
    )


def _allocate(size: int, device: int) -> int:
    stream = cupy.cuda.get_current_stream()
    if stream.ptr == _PER_THREAD:
        raise Unsupported(
            "CuPy's default stream of each thread is in use, and whose memory is whose cannot be told then",
            "unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM, or use streams of your own, with drover.cupy.use_slabs()",
        )
    _streams.setdefault(stream.ptr, stream)
    return _core.slabs_allocate(size, device, stream.ptr)


def _free(address: int, device: int, free: Any = _core.slabs_free) -> None:
    # Called until the very end, when names of modules are gone. The memory is its stream's, whichever is current now.
    del device
    free(address)


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Say how arrays travel."""
    del library
    return {cupy.ndarray: _reduce}


def _reduce(array: cupy.ndarray) -> Any:
    if array.size == 0:
        return _empty, (array.shape, array.dtype.str)
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = cupy.ascontiguousarray(array)  # forms that others have no word for
    with array.device:
        stream = cupy.cuda.get_current_stream().ptr
        capsule = array.view(_bytes_like(array.dtype)).__dlpack__(stream=-1)
        made, _ = _core.import_array(_session.current(), capsule, stream)
    return _rebuild, (_objects.carry(made), array.dtype.str)


def _bytes_like(dtype: Any) -> str:
    """Give a type of the same size that every version of DLPack knows."""
    return "u1" if dtype.kind == "b" else dtype.str


def _rebuild(number: int, dtype: str) -> cupy.ndarray:
    """Open it; what the current stream does with it from now on comes after the sender's work."""
    return cupy.from_dlpack(_objects.carried(number)).view(dtype)


def _empty(shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
    return cupy.empty(shape, dtype)
