"""Tensors of torch in shared memory, and how all tensors of torch travel.

`import drover.torch` imports torch. Programs that never use torch do not pay for it: drover itself looks whether it
is there, and then sends its tensors by handle.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import pickle
from typing import Any

import torch
from torch.storage import TypedStorage, UntypedStorage

from drover import _core, _objects, _session
from drover._errors import InvalidArgument, Unsupported

__all__ = ["empty", "empty_cache", "memory_usage", "tensor", "use_slabs", "zeros"]

_ALIGNMENT = 512  # of parts of device memory, as torch's own
_LEGACY_STREAM = 1  # what DLPack calls it
_MOST_DIMENSIONS = 8  # of drover's tensors
# Types of elements that drover has, by its names, and DLPack in all versions of torch: not of bool in old ones.
_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in _FLOATS + _INTEGERS}
_chosen: list[Any] = []  # the allocator, once torch has it


def _notice_captures(graph: Any) -> None:
    """Let drover know while torch captures a graph: what it waits for then, to unmap memory, does not break in."""
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._drover_notice = _core.CaptureNotice()
        return begin(self, *args, **kwargs)

    @functools.wraps(end)
    def capture_end(self: Any) -> Any:
        try:
            return end(self)
        finally:
            self._drover_notice = None

    graph.capture_begin, graph.capture_end = capture_begin, capture_end


_notice_captures(torch.cuda.CUDAGraph)


def empty(*size: Any, dtype: torch.dtype | None = None, device: Any = "cpu") -> torch.Tensor:
    """Make a tensor in shared memory, of the CPU or of a GPU, with any contents.

    Sent to another process, or passed to one, it is not copied: both have the same elements, and what one writes the
    other sees. It lives until nobody has it any more.
    """
    return _in_slab(_size(size), dtype or torch.get_default_dtype(), device, is_zeroed=False)


def zeros(*size: Any, dtype: torch.dtype | None = None, device: Any = "cpu") -> torch.Tensor:
    """Make a tensor of zeros in shared memory; see `empty`."""
    return _in_slab(_size(size), dtype or torch.get_default_dtype(), device, is_zeroed=True)


def tensor(data: Any, dtype: torch.dtype | None = None, device: Any = "cpu") -> torch.Tensor:
    """Copy a tensor, or anything that torch makes one of, into shared memory; see `empty`."""
    source = torch.as_tensor(data, dtype=dtype).detach()
    made = _in_slab(source.shape, source.dtype, device, is_zeroed=False)
    return made.copy_(source)


def use_slabs(cached_bytes: int | None = None) -> None:
    """Let torch take all its memory on GPUs from drover's slabs, in this process, from now on.

    Every tensor is then handed to other processes as those of `empty` are: by a lease, without a copy, and it stays
    when this process dies. Freed memory is kept for the next tensors of the same stream, at most `cached_bytes` on
    each GPU: an eighth of its memory unless given. Call it before torch's first tensor on a GPU; a second call does
    nothing.

    torch's own figures (`torch.cuda.memory_stats` and its like) and CUDA graphs do not work with an allocator that
    is not torch's; see `memory_usage`.
    """
    _require_cuda()
    if _chosen:
        return
    if torch.cuda.device_count() > 1:
        raise Unsupported(
            f"this process sees {torch.cuda.device_count()} GPUs, and torch would use memory of one in kernels of "
            "another, which slabs do not allow yet",
            "let each process see one GPU, as workers of drover.Pool(devices='all') do, or set CUDA_VISIBLE_DEVICES",
        )
    _core.use_slabs(_session.current(), "cuda", cached_bytes)
    made = torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, "drover_slabs_alloc", "drover_slabs_free")
    by_stream = ctypes.CDLL(_core.__file__).drover_slabs_record_stream
    try:
        made.allocator().set_record_stream_fn(ctypes.cast(by_stream, ctypes.c_void_p).value)
    except AttributeError as error:
        raise Unsupported(
            f"torch {torch.__version__} tells no allocator of its streams", "use torch 2.1 or newer"
        ) from error
    try:
        torch.cuda.memory.change_current_allocator(made)
    except RuntimeError as error:
        raise InvalidArgument(
            f"torch has used its own allocator on a GPU already, in process {os.getpid()}: {error}",
            "call drover.torch.use_slabs() before the first tensor on a GPU, and in each process for itself",
        ) from error
    _chosen.append(made)


def empty_cache() -> None:
    """Give back the GPU memory that was freed, and is kept for the next tensors, after `use_slabs`."""
    _core.empty_slabs_cache()


def memory_usage(device: int | None = None) -> dict[str, int]:
    """Count what torch has of one GPU, or of all, after `use_slabs`: `blocks` and their `bytes`, those `cached`.

    `hits` and `misses` are allocations that found freed memory, and those that did not.
    """
    return _core.slabs_usage(device)


def _size(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(given[0]) if len(given) == 1 and hasattr(given[0], "__iter__") else given


def _in_slab(size: tuple[int, ...], dtype: torch.dtype, device: Any, is_zeroed: bool) -> torch.Tensor:
    if any(length < 0 for length in size):
        raise InvalidArgument(f"a tensor was to have the size {tuple(size)}", "give sizes of 0 or more")
    place = _place(torch.device(device))
    count = math.prod(size) * dtype.itemsize
    if count == 0:
        return torch.zeros(size, dtype=dtype, device=device)
    made = _core.empty(_session.current(), "uint8", [count], place, is_zeroed)
    strides = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
    storage = _cpu_storage(made) if place == "cpu" else torch.from_dlpack(made).untyped_storage()
    return _rebuild(storage, dtype, (tuple(size), tuple(strides), 0), False)


def _place(device: torch.device) -> str:
    """Name a device of torch in drover's words."""
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise InvalidArgument(f"a tensor was to lie on {device}", "use the CPU, or a GPU: cuda:0")
    _require_cuda()
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def _require_cuda() -> None:
    if not torch.cuda.is_available():
        raise Unsupported(
            f"torch {torch.__version__} has no CUDA here: it was built without it, or finds no driver or no device",
            "see what `drover doctor` says, and install a torch for this driver; without a GPU use device='cpu'",
        )


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Say how tensors travel: by their storages, so that those which share one share it at the other end too."""
    del library
    _objects.alone[torch.Tensor] = _alone
    return {
        torch.Tensor: _reduce,
        torch.nn.Parameter: _reduce_as_torch,
        TypedStorage: _reduce_typed,
        UntypedStorage: _reduce_storage,
    }


def _reduce_as_torch(tensor: torch.Tensor) -> Any:
    return tensor.__reduce_ex__(_objects.PROTOCOL)


def _reduce(tensor: torch.Tensor) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise InvalidArgument(
            "a tensor that was computed from others, and has a gradient, was to be sent; its history stays here",
            "send tensor.detach()",
        )
    if not _is_simple(tensor):
        return _reduce_as_torch(tensor)
    storage = tensor.untyped_storage()
    if tensor.device.type == "cpu" and storage.nbytes() > 2 * tensor.nbytes and not _is_shared(storage):
        # A small part of a storage: what it does not use is not sent.
        storage = (tensor := tensor.detach().clone().requires_grad_(tensor.requires_grad)).untyped_storage()
    form = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return _rebuild, (storage, tensor.dtype, form, tensor.requires_grad)


def _alone(tensor: torch.Tensor) -> _core.Tensor | None:
    """Give what says all of a tensor but for the rest of its storage, if it is one on a GPU."""
    if not tensor.is_cuda or tensor.requires_grad or tensor.dim() > _MOST_DIMENSIONS or not _is_simple(tensor):
        return None
    name = _NAMES.get(tensor.dtype)
    if name is None:
        return None
    own = _find(tensor, name, tensor.shape, tensor.stride())
    # What is not in a slab may have to be copied, which leaves out what lies between its elements.
    if own is not None or tensor.numel() == 0 or not tensor.is_contiguous():
        return own
    return _import_tensor(tensor)


def _find(memory: torch.Tensor | UntypedStorage, dtype: str, shape: Any, strides: Any) -> _core.Tensor | None:
    """Find what lies in a slab; others wait for what torch's current stream was given until now."""
    index = memory.device.index
    return _core.find_on_device(_session.current(), memory.data_ptr(), dtype, shape, strides, index, _stream(index))


def _is_simple(tensor: torch.Tensor) -> bool:
    """Tell whether storage, type and form are all there is to it."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not (tensor._backward_hooks or tensor.__dict__)
    )


Form = tuple[tuple[int, ...], tuple[int, ...], int]  # size, strides, offset


def _rebuild(storage: UntypedStorage, dtype: torch.dtype, form: Form, requires_grad: bool) -> torch.Tensor:
    size, strides, offset = form
    made = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, strides)
    return made.requires_grad_() if requires_grad else made


def _reduce_typed(storage: TypedStorage) -> Any:
    return _rebuild_typed, (storage._untyped_storage, storage.dtype)


def _rebuild_typed(untyped: UntypedStorage, dtype: torch.dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def _reduce_storage(storage: UntypedStorage) -> Any:
    if storage.device.type == "cuda":
        return _cuda_storage, (_objects.carry(_import(storage), _join), storage.device.index)
    if storage.device.type != "cpu" or (storage.is_shared() and not _is_shared(storage)):
        # In torch's own shared memory (share_memory_), which torch has its way to send.
        from torch.multiprocessing.reductions import reduce_storage  # noqa: PLC0415 (only for these)

        return reduce_storage(storage)
    if storage.nbytes() == 0:
        return UntypedStorage, (0,)
    return _cpu_storage, (pickle.PickleBuffer(_bytes_of(storage)),)


def _bytes_of(storage: UntypedStorage) -> Any:
    view = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
    view.owner = storage  # which lives as long as its bytes are looked at
    return view


def _is_shared(storage: UntypedStorage) -> bool:
    return storage.nbytes() > 0 and _core.find_shared(_bytes_of(storage)) is not None


def _cpu_storage(buffer: Any) -> UntypedStorage:
    # torch holds the object but not its buffer. A memoryview holds that, so the tensor is found to be shared when it
    # is sent.
    return torch.frombuffer(memoryview(buffer), dtype=torch.uint8).untyped_storage()


def _import(storage: UntypedStorage) -> _core.Tensor:
    """Make a tensor of device memory; others wait for what torch's current stream was given until now."""
    if storage.nbytes() == 0:
        return _core.empty(_session.current(), "uint8", [0])
    own = _find(storage, "uint8", (storage.nbytes(),), (1,))
    if own is not None:
        return own
    return _import_tensor(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))


def _import_tensor(tensor: torch.Tensor) -> _core.Tensor:
    if not tensor.is_cuda:
        return _core.import_array(_session.current(), tensor.__dlpack__(), None)[0]
    index = tensor.device.index
    if index != torch.cuda.current_device():  # torch gives away arrays of the current device only
        with torch.cuda.device(index):
            return _import_tensor(tensor)
    capsule = tensor.__dlpack__(stream=-1)
    return _core.import_array(_session.current(), capsule, _stream(index), tensor.stride())[0]


def _join(tensors: list[_core.Tensor]) -> tuple[list[_core.Tensor], list[_objects.Part]]:
    """Put tensors of bytes behind each other, by one copy on their device; say where each of them is."""
    flats = [torch.from_dlpack(tensor) if tensor.nbytes else torch.empty(0, dtype=torch.uint8) for tensor in tensors]
    devices = list(dict.fromkeys(flat.device for flat in flats))
    ends = dict.fromkeys(devices, 0)
    places: list[_objects.Part] = []
    for flat in flats:
        places.append((devices.index(flat.device), ends[flat.device], flat.nbytes))
        ends[flat.device] += -(-flat.nbytes // _ALIGNMENT) * _ALIGNMENT
    wholes = [torch.empty(max(1, ends[device]), dtype=torch.uint8, device=device) for device in devices]
    for flat, (index, begin, size) in zip(flats, places, strict=True):
        wholes[index][begin : begin + size].copy_(flat.reshape(-1))
    return [_import_tensor(whole) for whole in wholes], places


def _cuda_storage(number: int, index: int) -> UntypedStorage:
    """Open device memory; what torch's current stream does with it from now on comes after the sender's work."""
    received = _objects.carried(number)
    if received.nbytes == 0:
        return UntypedStorage(0, device=f"cuda:{index}")
    return opened(received).untyped_storage()


def opened(received: _core.Tensor) -> torch.Tensor:
    """Make a tensor of device memory that came; see `_cuda_storage`."""
    # As torch.from_dlpack(received) does it, without its detours, which take half of the time.
    capsule = received.__dlpack__(stream=_stream(received.__dlpack_device__()[1]) or _LEGACY_STREAM)
    return torch.from_dlpack(capsule)


def _stream(device: int) -> int:
    """Give torch's current stream on a GPU; 0 is the legacy default stream."""
    if not torch.cuda.is_initialized():
        torch.cuda.init()
    return torch._C._cuda_getCurrentRawStream(device)
