"""Tensors of torch in shared memory, and how all tensors of torch travel.

`import drover.torch` imports torch. Programs that never use torch do not pay for it: drover itself looks whether it
is there, and then sends its tensors by handle.
"""

from __future__ import annotations

import ctypes
import math
import pickle
from typing import Any

import torch
from torch.storage import TypedStorage, UntypedStorage

from drover import _core, _objects, _session
from drover._errors import InvalidArgument

__all__ = ["empty", "tensor", "zeros"]

_ALIGNMENT = 512  # of parts of device memory, as torch's own


def empty(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Make a tensor of the CPU in shared memory, with any contents.

    Sent to another process, or passed to one, it is not copied: both have the same elements, and what one writes the
    other sees. It lives until nobody has it any more.
    """
    return _in_slab(_size(size), dtype or torch.get_default_dtype(), is_zeroed=False)


def zeros(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Make a tensor of zeros of the CPU in shared memory; see `empty`."""
    return _in_slab(_size(size), dtype or torch.get_default_dtype(), is_zeroed=True)


def tensor(data: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Copy a tensor, or anything that torch makes one of, into shared memory of the CPU; see `empty`."""
    source = torch.as_tensor(data, dtype=dtype).detach()
    made = _in_slab(source.shape, source.dtype, is_zeroed=False)
    return made.copy_(source)


def _size(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(given[0]) if len(given) == 1 and hasattr(given[0], "__iter__") else given


def _in_slab(size: tuple[int, ...], dtype: torch.dtype, is_zeroed: bool) -> torch.Tensor:
    if any(length < 0 for length in size):
        raise InvalidArgument(f"a tensor was to have the size {tuple(size)}", "give sizes of 0 or more")
    count = math.prod(size) * dtype.itemsize
    if count == 0:
        return torch.zeros(size, dtype=dtype)
    made = _core.empty(_session.current(), "uint8", [count], "cpu", is_zeroed)
    strides = [math.prod(size[place + 1 :]) for place in range(len(size))]
    return _rebuild(_cpu_storage(made), dtype, (tuple(size), tuple(strides), 0), False)


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Say how tensors travel: by their storages, so that those which share one share it at the other end too."""
    del library
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
    return _import_tensor(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))


def _import_tensor(flat: torch.Tensor) -> _core.Tensor:
    if not flat.is_cuda:
        return _core.import_array(_session.current(), flat.__dlpack__(), None)[0]
    with torch.cuda.device(flat.device):  # torch gives away arrays of the current device only
        stream = torch.cuda.current_stream().cuda_stream
        return _core.import_array(_session.current(), flat.__dlpack__(stream=-1), stream)[0]


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
    return torch.from_dlpack(received).untyped_storage()
