"""Torch tensors, modules and structures of them, moved into shared memory on purpose."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterable
from typing import Any

import torch

from drover import _sharing
from drover._errors import Unsupported

__all__ = ["extend_torch", "share"]

_DEVICES = ("cpu", "cuda")


def share(thing: Any) -> Any:
    """Move everything in a structure into shared memory, once; return the structure.

    The structure is a tensor, a module, an optimizer, a numpy array, or any nesting of them in dicts, lists, tuples,
    sets and dataclasses. GPU tensors stay on their device. Afterwards all processes that get the structure see the
    same elements, whoever writes them, and the memory lasts as long as any of them uses it. What is in shared memory
    already stays where it is.

    Tensors are moved in place: parameters, buffers and gradients keep their identity, tied weights and views stay
    tied, and so do other tensors of this process on the same memory. Numpy arrays cannot be moved in place, so the
    structure gets new ones instead. No other thread may use the tensors meanwhile.

    Raises Unsupported for sparse, nested and quantized tensors, and for tensors on other devices; the structure then
    stays as it was.

    >>> import drover.torch
    >>> import torch
    >>> model = drover.torch.share(torch.nn.Linear(2, 1))
    >>> def set_bias(model):
    ...     with torch.no_grad():
    ...         model.bias.fill_(7)
    >>> process = drover.Process(target=set_bias, args=(model,))
    >>> process.start()
    >>> process.join()
    >>> model.bias.item()
    7.0
    """
    return _sharing.share(thing)


def is_shared(tensor: torch.Tensor) -> bool:
    """Return whether a tensor lies in shared memory of drover, or, on the CPU, of torch."""
    storage = tensor.untyped_storage()
    return storage.nbytes() == 0 or _is_storage_shared(storage)


def _is_storage_shared(storage: torch.UntypedStorage) -> bool:
    from drover import torch as ours  # noqa: PLC0415 (imports this module)

    if storage.device.type == "cpu":
        return storage.is_shared() or ours._is_in_slab(storage)
    return ours._is_in_slab(storage)


class _Moves:
    """The storages that one call of `share` moves, and the tensors on them."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}  # the old ones, by their numbers, alive during the call
        self._tensors: dict[int, dict[int, torch.Tensor]] = {}  # on each, by id

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        number = storage._cdata
        if number not in self._storages:
            if storage.nbytes() == 0 or _is_storage_shared(storage):
                return
            self._storages[number] = storage
            self._tensors[number] = {}
        self._tensors[number][id(tensor)] = tensor

    def run(self) -> None:
        """Move all storages, and every tensor of this process on them."""
        self._find_others()
        with torch.no_grad():
            copies = {number: _copied(storage) for number, storage in self._storages.items()}
            for number, shared in copies.items():
                for tensor in self._tensors[number].values():
                    _move(tensor, shared)

    def _find_others(self) -> None:
        """Find the tensors on these storages that the structure does not contain, such as views of a parameter."""
        if all(self._is_complete(number, storage) for number, storage in self._storages.items()):
            return
        for thing in gc.get_objects():
            # Not isinstance, which calls code of objects that pretend to be of another class.
            if not issubclass(type(thing), torch.Tensor):
                continue
            # Tensors of any library, some of which have no storage and raise whatever they are asked.
            with contextlib.suppress(Exception):
                if _is_movable(thing) and (tensors := self._tensors.get(thing.untyped_storage()._cdata)) is not None:
                    tensors[id(thing)] = thing

    def _is_complete(self, number: int, storage: torch.UntypedStorage) -> bool:
        uses = getattr(torch._C, "_storage_Use_Count", None)
        return uses is not None and uses(storage._cdata) <= len(self._tensors[number]) + 1


def _is_movable(tensor: torch.Tensor) -> bool:
    is_dense = tensor.layout is torch.strided and not tensor.is_nested
    return is_dense and tensor.device.type in _DEVICES and not tensor.is_quantized


def _copied(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    from drover import torch as ours  # noqa: PLC0415 (imports this module)

    flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return ours.tensor(flat, device=storage.device).untyped_storage()


def _move(tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
    """Make a tensor use another storage in the same way."""
    moved = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    moved.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        moved = torch._conj(moved)
    if tensor.is_neg():
        moved = torch._neg_view(moved)
    if tensor.is_inference():
        with torch.inference_mode():
            tensor.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    else:
        tensor.data = moved


def _moves_of(walk: Any) -> _Moves:
    if "torch" not in walk.memories:
        walk.memories["torch"] = moves = _Moves()
        walk.at_end["torch"] = moves.run
    return walk.memories["torch"]


def _move_tensor(walk: Any, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "meta":
        return tensor
    if not _is_movable(tensor):
        raise Unsupported(
            f"cannot move a tensor on {tensor.device} of layout {tensor.layout}"
            f"{', quantized,' if tensor.is_quantized else ''} into shared memory",
            "share the tensors that it consists of, or a dense copy on the CPU or a CUDA GPU",
        )
    _moves_of(walk).add(tensor)
    if tensor.grad_fn is None and tensor.requires_grad and tensor.grad is not None:
        walk.move(tensor.grad)
    return tensor


def _move_module(walk: Any, module: torch.nn.Module) -> torch.nn.Module:
    for tensor in _tensors_of(module):
        walk.move(tensor)
    return module


def _tensors_of(module: torch.nn.Module) -> Iterable[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _move_optimizer(walk: Any, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    walk.move(optimizer.param_groups)
    walk.move(optimizer.state)
    return optimizer


def extend_torch() -> None:
    """Make torch's own methods move tensors on GPUs, where they do nothing by themselves; as before on the CPU."""
    movers = {
        torch.Tensor: _move_tensor,
        torch.nn.Module: _move_module,
        torch.optim.Optimizer: _move_optimizer,
    }
    methods = (
        (torch.Tensor, "share_memory_", _share_tensor),
        (torch.nn.Module, "share_memory", _share_module),
        (torch.Tensor, "is_shared", _is_tensor_shared),
    )
    extended = [(kind, name, _extended(getattr(kind, name), ours)) for kind, name, ours in methods]
    for kind, name, method in extended:
        setattr(kind, name, method)
    _sharing.movers.update(movers)


def _extended(original: Any, ours: Any) -> Any:
    original = getattr(original, "_drover_original", original)  # extended before, if this module is imported again

    @functools.wraps(original)
    def extended(self: Any) -> Any:
        return ours(self, original)

    extended._drover_original = original  # type: ignore[attr-defined]
    return extended


def _is_ours(tensor: torch.Tensor) -> bool:
    # Subclasses that override torch functions, such as distributed tensors, decide themselves.
    return _is_plain(tensor) and (tensor.is_cuda or (tensor.device.type == "cpu" and _is_in_slab(tensor)))


def _is_plain(tensor: torch.Tensor) -> bool:
    override = type(tensor).__torch_function__
    return getattr(override, "__func__", override) in _NO_OVERRIDES and _is_movable(tensor)


_NO_OVERRIDES = (torch._C._disabled_torch_function_impl, torch.Tensor.__torch_function__.__func__)


def _is_in_slab(tensor: torch.Tensor) -> bool:
    from drover import torch as ours  # noqa: PLC0415 (imports this module)

    return ours._is_in_slab(tensor.untyped_storage())


def _share_tensor(tensor: torch.Tensor, original: Any) -> torch.Tensor:
    return share(tensor) if _is_ours(tensor) else original(tensor)


def _share_module(module: torch.nn.Module, original: Any) -> torch.nn.Module:
    _share_on_devices(module)
    made = original(module)
    _share_on_devices(module)  # again: recurrent modules have packed their weights anew
    return made


def _share_on_devices(module: torch.nn.Module) -> None:
    share([tensor for tensor in _tensors_of(module) if tensor.is_cuda and _is_plain(tensor)])


def _is_tensor_shared(tensor: torch.Tensor, original: Any) -> bool:
    if not _is_ours(tensor):
        return original(tensor)
    return is_shared(tensor)
