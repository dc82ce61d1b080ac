"""Torch tensors in shared memory, and how torch tensors of any kind are sent.

Importing this module imports torch. Sending does not need that import: drover notices when a program has imported
torch, and then sends its tensors without a pickle of their elements.
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

from drover import _core, _descriptors, _objects, _session, _torch_slabs
from drover._errors import InvalidArgument, Unsupported
from drover._torch_share import extend_torch, share
from drover._torch_spawn import spawn

__all__ = ["empty", "empty_cache", "memory_usage", "send", "share", "spawn", "tensor", "use_slabs", "zeros"]

_CUDA = 2  # DLPack's number for GPUs
_LEGACY_STREAM = 1  # and for CUDA's legacy default stream
_MOST_DIMENSIONS = 8  # of drover's tensors
# Dtypes that drover supports, and DLPack in every version of torch, with drover's names. Old versions lack bool.
_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in _FLOATS + _INTEGERS}
_HAS_EXCHANGE_API = _core.has_exchange_api(torch.Tensor)  # since torch 2.10


def _notice_captures(graph: Any) -> None:
    """Notify drover while torch captures a graph, since unmapping memory would break the capture."""
    begin, end = graph.capture_begin, graph.capture_end
    if hasattr(begin, "_drover_original"):
        return  # this module is imported again

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

    capture_begin._drover_original = begin  # type: ignore[attr-defined]
    graph.capture_begin, graph.capture_end = capture_begin, capture_end


def empty(*size: Any, dtype: torch.dtype | None = None, device: Any = "cpu") -> torch.Tensor:
    """Create an uninitialised tensor in shared memory, on the CPU or a GPU.

    Sending the tensor to another process, or passing it to one, does not copy it: both processes see the same
    elements, and each sees what the other writes. The memory is freed when the last process drops it.

    Raises InvalidArgument for a negative size or another kind of device, and Unsupported for a GPU if torch cannot
    use CUDA.

    >>> import drover.torch
    >>> shared = drover.torch.empty(2, 3)
    >>> _ = shared.fill_(1)
    >>> def double(tensor):
    ...     tensor.mul_(2)
    >>> process = drover.Process(target=double, args=(shared,))
    >>> process.start()
    >>> process.join()
    >>> shared.sum()
    tensor(12.)
    """
    return _in_slab(_size(size), dtype or torch.get_default_dtype(), device, is_zeroed=False)


def zeros(*size: Any, dtype: torch.dtype | None = None, device: Any = "cpu") -> torch.Tensor:
    """Create a tensor of zeros in shared memory; see `empty`."""
    return _in_slab(_size(size), dtype or torch.get_default_dtype(), device, is_zeroed=True)


def tensor(data: Any, dtype: torch.dtype | None = None, device: Any = "cpu") -> torch.Tensor:
    """Copy a tensor, or anything `torch.as_tensor` accepts, into shared memory; see `empty`."""
    source = torch.as_tensor(data, dtype=dtype).detach()
    made = _in_slab(source.shape, source.dtype, device, is_zeroed=False)
    return made.copy_(source)


def send(mode: str) -> None:
    """Set how messages of this process carry tensors and arrays outside of shared memory: by value or by reference.

    By "value", the default, a message is a copy of this moment, made on the device where the tensor lies. It survives
    this process, and neither side sees what the other writes afterwards. By "reference" both sides share the memory,
    as with torch.multiprocessing: what the sender writes later is seen by the receiver, and tensors on a GPU are lost
    with the sender. Arguments of processes, initializers and actors always go by reference.

    Processes started afterwards inherit the mode, in the variable DROVER_SEND, which also sets it from outside.

    Raises InvalidArgument for another mode.
    """
    _objects.set_send_mode(mode)


def use_slabs(cached_bytes: int | None = None) -> None:
    """Make torch allocate GPU memory from drover's slabs in this process, from now on.

    Every tensor is then sent to other processes without a copy and survives the death of this process, as those of
    `empty` do. torch's own allocator stays in charge, with its cache, statistics, errors and graphs; it only gets its
    segments from slabs. While others have a tensor that was sent, torch does not reuse its memory, although it was
    deleted here. Tensors from before are sent by a copy. A second call does nothing.

    torch keeps its free memory for itself. To let drover keep some as well, after `torch.cuda.empty_cache`, set
    `cached_bytes`, a limit for each GPU. Expandable segments are turned off for new segments.

    Builds of torch that contain the CUDA runtime get drover's allocator instead of torch's, which has no statistics
    and no graphs, and which must be installed before the first GPU tensor; `cached_bytes` is then by default an
    eighth of each GPU.

    Raises Unsupported without CUDA, or if torch does not use its own allocator; and for such builds with several
    visible GPUs, and InvalidArgument if they have already allocated GPU memory.
    """
    _require_cuda()
    _torch_slabs.use(cached_bytes)


def empty_cache() -> None:
    """Free the GPU memory that torch and drover cache, and that nobody uses."""
    _torch_slabs.empty_cache()


def memory_usage(device: int | None = None) -> dict[str, int]:
    """Return counts of the memory of `use_slabs`, on one GPU or on all.

    `blocks` and `bytes` are in use, as segments of torch's allocator; `cached_blocks` and `cached_bytes` are free for
    reuse; `hits` and `misses` count allocations that found cached memory, and those that did not. For tensors see
    `torch.cuda.memory_stats`.
    """
    return _core.slabs_usage(device)


def _size(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(arguments[0]) if len(arguments) == 1 and hasattr(arguments[0], "__iter__") else arguments


def _in_slab(size: tuple[int, ...], dtype: torch.dtype, device: Any, is_zeroed: bool) -> torch.Tensor:
    if any(length < 0 for length in size):
        raise InvalidArgument(f"{tuple(size)} is not a valid size of a tensor", "use lengths of 0 or more")
    place = _place(torch.device(device))
    count = math.prod(size) * dtype.itemsize
    if count == 0:
        return torch.zeros(size, dtype=dtype, device=device)
    made = _core.empty(_session.current(), "uint8", [count], place, is_zeroed)
    strides = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
    storage = _cpu_storage(made) if place == "cpu" else torch.from_dlpack(made).untyped_storage()
    return _rebuild(storage, dtype, (tuple(size), tuple(strides), 0), False)


def _place(device: torch.device) -> str:
    """Return drover's name of a torch device."""
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise InvalidArgument(f"cannot place a tensor on {device}", "use the CPU, or a GPU such as cuda:0")
    _require_cuda()
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def _require_cuda() -> None:
    if not torch.cuda.is_available():
        raise Unsupported(
            f"torch {torch.__version__} cannot use CUDA: it was built without it, or found no driver or device",
            "run `drover doctor`, and install a torch that fits the driver; without a GPU, use device='cpu'",
        )


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Return the reducers. Tensors that overlap in memory still do at the receiver."""
    del library
    _objects.alone[torch.Tensor] = _add_alone
    return {
        torch.Tensor: _core.tensor_reducer(_core.open_tensor, _reduce),
        type(_core.open_tensor): _reduce_function,
        torch.nn.Parameter: _reduce_parameter,
        TypedStorage: _reduce_typed,
        UntypedStorage: _reduce_storage,
    }


def _reduce_function(function: Any) -> str:
    return function.__name__


def _reduce_as_torch(tensor: torch.Tensor) -> Any:
    return tensor.__reduce_ex__(_objects.PROTOCOL)


def _reduce_parameter(parameter: torch.nn.Parameter) -> Any:
    if parameter._backward_hooks or parameter.__dict__:
        return _reduce_as_torch(parameter)
    return torch.nn.Parameter, (parameter.data, parameter.requires_grad)


def _reduce(tensor: torch.Tensor) -> Any:
    requires_grad = tensor.requires_grad
    if requires_grad and not tensor.is_leaf:
        raise InvalidArgument(
            "cannot send a tensor with requires_grad that is not a leaf: its autograd history cannot be sent",
            "send tensor.detach()",
        )
    if not _is_simple(tensor):
        return _reduce_as_torch(tensor)
    _check_storage(tensor)
    if tensor.numel() == 0:
        return _empty, (tuple(tensor.shape), tensor.dtype, str(tensor.device), requires_grad)
    if tensor.dtype not in _NAMES or tensor.dim() > _MOST_DIMENSIONS:
        return _reduce_by_storage(tensor)
    if not tensor.is_cuda:
        storage = tensor.untyped_storage()
        is_small = _objects.is_inline(storage.nbytes()) and not _is_in_slab(storage)
        if is_small or _is_sent_whole(storage):
            return _reduce_by_storage(tensor)
    return _open, (_add(tensor, _objects.arrays()), requires_grad)


def _reduce_by_storage(tensor: torch.Tensor) -> Any:
    form = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return _rebuild, (tensor.untyped_storage(), tensor.dtype, form, tensor.requires_grad)


def _add_alone(tensor: torch.Tensor, arrays: _core.Arrays) -> bool:
    """Add a tensor that is the whole message, if a drover tensor describes it completely (see `_objects.alone`)."""
    if tensor.requires_grad or tensor.dim() > _MOST_DIMENSIONS or not _is_simple(tensor):
        return False
    if tensor.numel() == 0 or tensor.dtype not in _NAMES:
        return False
    _check_storage(tensor)
    if not tensor.is_cuda and (_objects.is_inline(tensor.nbytes) or _is_sent_whole(tensor.untyped_storage())):
        return False
    _add(tensor, arrays)
    return True


def _add(tensor: torch.Tensor, arrays: _core.Arrays) -> int:
    """Add a tensor to the arrays of a message. Receivers wait for torch's current stream up to now."""
    if _HAS_EXCHANGE_API:
        return arrays.add(tensor)
    tensor = tensor.detach()
    if not tensor.is_cuda:
        return arrays.add_capsule(tensor.__dlpack__(), None, tensor.stride(), is_known=True)
    with torch.cuda.device(tensor.device):  # older versions export arrays of the current device only
        capsule = tensor.__dlpack__(stream=-1)
    return arrays.add_capsule(capsule, _stream(tensor.device.index), tensor.stride(), is_known=True)


def _check_storage(tensor: torch.Tensor) -> None:
    """Refuse a tensor whose storage has been freed or cut, as some libraries do to save memory."""
    has, item = tensor.untyped_storage().nbytes(), tensor.element_size()
    if has >= (tensor.storage_offset() + tensor.numel()) * item or tensor.numel() == 0:
        return
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needs = (tensor.storage_offset() + sum(steps) + 1) * item
    if has < needs:
        raise InvalidArgument(
            f"cannot send a tensor of shape {tuple(tensor.shape)} on {tensor.device}: its elements need {needs} "
            f"bytes of its storage, which has {has}",
            "send it before its storage is resized, or after it has been filled again",
        )


def _is_simple(tensor: torch.Tensor) -> bool:
    """Return whether storage, dtype and layout describe the tensor completely."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and (tensor.is_cuda or tensor.is_cpu)
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not (tensor._backward_hooks or tensor.__dict__)
    )


def _open(number: int, requires_grad: bool) -> torch.Tensor:
    made = opened(_objects.carried(number))
    return made.requires_grad_() if requires_grad else made


def opened(received: _core.Tensor) -> torch.Tensor:
    """Return a received tensor as one of torch, whose current stream waits for the sender's work."""
    device, index = received.__dlpack_device__()
    if device == _CUDA:
        initialize()
    if _HAS_EXCHANGE_API:
        return _core.to_array(received, torch.Tensor)
    stream = (_stream(index) or _LEGACY_STREAM) if device == _CUDA else None
    return torch.from_dlpack(received.__dlpack__(stream=stream))


def initialize() -> None:
    """Initialise CUDA for torch, which does not do so when it opens a tensor; called for each message on a GPU."""
    if not torch.cuda.is_initialized():
        torch.cuda.init()


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: str, requires_grad: bool) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device, requires_grad=requires_grad)


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
    kind = storage.device.type
    if kind not in ("cpu", "cuda"):
        from torch.multiprocessing.reductions import reduce_storage  # noqa: PLC0415 (imported only if needed)

        return reduce_storage(storage)
    if storage.nbytes() == 0:
        return _empty_storage, (str(storage.device),)
    is_in_slab = kind == "cpu" and _is_in_slab(storage)
    if kind == "cpu" and not is_in_slab:
        if _goes_torchs_way():
            return _reduce_shared(storage)
        if storage.is_shared():
            return _reduce_kept(storage)
    if kind == "cpu" and not is_in_slab and _objects.is_inline(storage.nbytes()):
        return _copied_storage, (pickle.PickleBuffer(_bytes_of(storage)),)
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return _open_storage, (_add(whole, _objects.arrays()),)


def _is_sent_whole(storage: UntypedStorage) -> bool:
    """Return whether a CPU storage outside of drover's memory is sent as a whole, since it is or will be shared."""
    return _goes_torchs_way() or storage.is_shared()


def _goes_torchs_way() -> bool:
    """Return whether CPU storages outside of drover's memory are shared as by torch, ending with their processes."""
    return _objects.is_by_reference() and not _objects.is_lasting()


def _reduce_kept(storage: UntypedStorage) -> Any:
    """Reduce a CPU storage that torch has shared; receivers share it too, also after this process has ended."""
    from torch.multiprocessing import get_sharing_strategy, reductions  # noqa: PLC0415 (imported only if needed)

    session, arrays = _session.current(), _objects.arrays()
    if get_sharing_strategy() == "file_descriptor":
        fd, size = storage._share_fd_cpu_()  # which stays the storage's
        key = reductions.fd_id(fd)
        number = arrays.add_tensor(_core.tensor_of_file(session, fd, 0, size))
    else:
        _, key, size = storage._share_filename_cpu_()  # which counts no reference
        with open(f"/dev/shm/{os.fsdecode(key)}", "r+b") as file:  # noqa: S108 (where torch makes it)
            header = os.fstat(file.fileno()).st_size - size
            number = arrays.add_tensor(_core.tensor_of_file(session, file.fileno(), header, size))
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return _open_kept, (number, key)


def _open_kept(number: int, key: Any) -> UntypedStorage:
    """Return the storage that this process has in the same memory, or else a new one."""
    from torch.multiprocessing import reductions  # noqa: PLC0415 (imported only if needed)

    storage = reductions.storage_from_cache(UntypedStorage, key)
    if storage is None:
        storage = _open_storage(number)
        reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return storage


def _reduce_shared(storage: UntypedStorage) -> Any:
    """Reduce a CPU storage in torch's way, which ends with this process; moves it into shared memory first."""
    from torch.multiprocessing import get_sharing_strategy, reductions  # noqa: PLC0415 (imported only if needed)

    if get_sharing_strategy() != "file_descriptor":
        reduced = reductions.reduce_storage(storage)  # which counts a reference that the receiver releases
        if reduced[0] is reductions.rebuild_storage_filename:
            _objects.if_discarded(storage._shared_decref)
        return reduced
    fd, size = storage._share_fd_cpu_()  # which stays the storage's
    # If this process receives it again, torch finds this storage here.
    reductions.shared_cache[reductions.fd_id(fd)] = reductions.StorageWeakRef(storage)
    return reductions.rebuild_storage_fd, (UntypedStorage, _descriptors.ticket_for(fd), size)


def _bytes_of(storage: UntypedStorage) -> Any:
    view = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
    view.owner = storage  # keeps the storage alive as long as the view
    return view


def _is_in_slab(storage: UntypedStorage) -> bool:
    if storage.nbytes() == 0:
        return False
    if storage.device.type == "cpu":
        return _core.find_shared(_session.current(), _bytes_of(storage)) is not None
    place = storage.data_ptr(), storage.nbytes(), storage.device.index
    return _core.find_on_device(_session.current(), *place) is not None


def _cpu_storage(buffer: Any) -> UntypedStorage:
    # torch keeps the object alive but not its buffer export. A memoryview keeps that too, which is how a later send
    # recognises the tensor as shared.
    return torch.frombuffer(memoryview(buffer), dtype=torch.uint8).untyped_storage()


def _copied_storage(buffer: Any) -> UntypedStorage:
    return torch.frombuffer(bytearray(buffer), dtype=torch.uint8).untyped_storage()


def _empty_storage(device: str) -> UntypedStorage:
    return UntypedStorage(0, device=device)


def _open_storage(number: int) -> UntypedStorage:
    return opened(_objects.carried(number)).untyped_storage()


def _stream(device: int) -> int:
    """Return torch's current stream on a GPU; 0 is the legacy default stream."""
    initialize()
    return torch._C._cuda_getCurrentRawStream(device)


# Last, so that an import that fails changes nothing in torch.
extend_torch()
_notice_captures(torch.cuda.CUDAGraph)
