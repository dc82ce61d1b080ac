"""torch's GPU memory in drover's slabs: below torch's own allocator, or in its place where that is not possible."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

import torch

from drover import _core, _session
from drover._errors import InvalidArgument, Unsupported

__all__ = ["are_used", "empty_cache", "use"]

# The library with torch's allocator. Its calls of cudaMalloc and cudaFree are routed, and no others.
_LIBRARY = "/libc10_cuda.so"
_EXPANDABLE = re.compile(r"(expandable_segments\s*:\s*)true", re.IGNORECASE)
_allocators: list[Any] = []  # the one that has replaced torch's, if it was replaced
_is_routed = False


def are_used() -> bool:
    """Return whether torch allocates in slabs."""
    return _is_routed or bool(_allocators)


def use(cached_bytes: int | None) -> None:
    """See `drover.torch.use_slabs`."""
    global _is_routed  # noqa: PLW0603 (once per process)
    if are_used():
        return
    _require_native_allocator()
    _core.use_slabs(_session.current(), "cuda", cached_bytes, is_divided=True)
    try:
        _core.route_cuda_malloc(_LIBRARY)
    except Unsupported:
        _replace_allocator(cached_bytes)
        return
    _is_routed = True
    _disable_expandable_segments()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # new tensors should not lie in segments from before


def empty_cache() -> None:
    """See `drover.torch.empty_cache`."""
    _core.trim_memory(_session.current())  # tensors that others have dropped go back to torch, and then to drover
    if _is_routed:
        torch.cuda.empty_cache()
    _core.empty_slabs_cache()
    _core.trim_memory(_session.current())


def _require_native_allocator() -> None:
    backend = torch.cuda.get_allocator_backend() if hasattr(torch.cuda, "get_allocator_backend") else "native"
    if backend != "native":
        raise Unsupported(
            f"torch allocates GPU memory by '{backend}' in process {os.getpid()}, not by its own allocator",
            "remove `backend` from PYTORCH_CUDA_ALLOC_CONF, and call drover.torch.use_slabs() instead of "
            "torch.cuda.memory.change_current_allocator()",
        )


def _disable_expandable_segments() -> None:
    """Make torch ask for new segments by cudaMalloc, which is routed. Existing expandable segments stay in use."""
    by_call = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    by_variable = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    settings = by_call() if by_call is not None else by_variable
    changed = _EXPANDABLE.sub(r"\g<1>False", settings or by_variable)
    if changed == (settings or by_variable):
        return
    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (change or torch.cuda.memory._set_allocator_settings)(changed)


def _replace_allocator(cached_bytes: int | None) -> None:
    """Put drover's allocator in the place of torch's, for builds of torch whose calls cannot be routed."""
    if torch.cuda.device_count() > 1:
        raise Unsupported(
            f"drover.torch.use_slabs() supports one GPU per process with torch {torch.__version__}, which contains "
            f"its own CUDA runtime, and this process sees {torch.cuda.device_count()}",
            "show each process one GPU, as drover.Pool(devices='all') does, or set CUDA_VISIBLE_DEVICES",
        )
    _core.use_slabs(_session.current(), "cuda", cached_bytes)
    made = torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, "drover_slabs_alloc", "drover_slabs_free")
    by_stream = ctypes.CDLL(_core.__file__).drover_slabs_record_stream
    try:
        made.allocator().set_record_stream_fn(ctypes.cast(by_stream, ctypes.c_void_p).value)
    except AttributeError as error:
        raise Unsupported(
            f"torch {torch.__version__} does not notify custom allocators of streams", "use torch 2.1 or newer"
        ) from error
    try:
        torch.cuda.memory.change_current_allocator(made)
    except RuntimeError as error:
        raise InvalidArgument(
            f"cannot replace torch's allocator in process {os.getpid()}, which has already used it on a GPU: {error}",
            "call drover.torch.use_slabs() in each process, before its first tensor on a GPU",
        ) from error
    _allocators.append(made)
