"""Buffers that are too many for one message, as few tensors: parts of one array together, and the rest copied."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

from drover import _core, _session

__all__ = ["WHOLE", "Join", "Part", "join", "join_alike", "join_shared"]

_ALIGNMENT = 64

Part = tuple[int, int, int]  # which tensor, from where, how many bytes
WHOLE = (1 << 64) - 1  # bytes of a part: all of the tensor, of whatever form it is
Join = Callable[[list[_core.Tensor]], tuple[list[_core.Tensor], list[Part]]]  # few of many, and where each one is


class _Run(NamedTuple):
    """Buffers that lie in one piece of shared memory."""

    begin: int
    tensor: _core.Tensor
    members: list[tuple[int, int]]  # which buffer, at which address


def join(large: list[memoryview], room: int, first: int) -> tuple[list[_core.Tensor], list[Part]]:
    """Give so many tensors at most, and where each buffer lies in them; their numbers begin with `first`.

    What lies in shared memory is shared, as far as there is room.
    """
    runs = sorted(_runs(large), key=lambda run: -len(run.members))
    if len(runs) > room or sum(len(run.members) for run in runs) < len(large):
        del runs[room - 1 :]  # the last tensor is for what is copied
    parts: dict[int, Part] = {}
    for number, run in enumerate(runs, first):
        for index, address in run.members:
            parts[index] = (number, address - run.begin, large[index].nbytes)
    tensors = [run.tensor for run in runs]
    left = [index for index in range(len(large)) if index not in parts]
    if left:
        tensors.append(_copied(large, left, first + len(runs), parts))
    return tensors, [parts[index] for index in range(len(large))]


def join_alike(
    tensors: Sequence[_core.Tensor], joins: Sequence[Join | None]
) -> tuple[list[_core.Tensor], list[Part]]:
    """Join the tensors of each way to do it; those without one stay as they are."""
    few: list[_core.Tensor] = []
    places: dict[int, Part] = {}
    for way in dict.fromkeys(joins):
        members = [index for index, one in enumerate(joins) if one is way]
        own = [tensors[index] for index in members]
        made, parts = (own, [(at, 0, WHOLE) for at in range(len(own))]) if way is None else way(own)
        places.update((index, (len(few) + at, *rest)) for index, (at, *rest) in zip(members, parts, strict=True))
        few += made
    return few, [places[index] for index in range(len(tensors))]


def join_shared(shared: list[memoryview]) -> tuple[list[_core.Tensor], list[Part]]:
    """Give as few tensors as hold all of these, which lie in shared memory, and where each lies in them."""
    runs = _runs(shared)
    return join(shared, len(runs) + 1, 0)


def _runs(large: list[memoryview]) -> list[_Run]:
    """Find what lies in shared memory; neighbours in one tensor are one run."""
    found = []
    for index, raw in enumerate(large):
        tensor = _core.find_shared(raw)
        if tensor is not None:
            found.append((_address(tensor), index, tensor))
    runs: list[_Run] = []
    end = 0
    for address, index, tensor in sorted(found, key=lambda one: one[:2]):
        size = large[index].nbytes
        whole = _between(runs[-1].begin, max(end, address + size)) if runs else None
        if whole is None:
            runs.append(_Run(address, tensor, [(index, address)]))
            end = address + size
        else:
            runs[-1].members.append((index, address))
            runs[-1] = runs[-1]._replace(tensor=whole)
            end = max(end, address + size)
    return runs


def _address(tensor: _core.Tensor) -> int:
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(memoryview(tensor)))


def _between(begin: int, end: int) -> _core.Tensor | None:
    """Give the tensor that lies there, if it is one. Nothing is read: the memory may be anybody's."""
    return _core.find_shared((ctypes.c_ubyte * (end - begin)).from_address(begin))


def _copied(large: list[memoryview], left: list[int], number: int, parts: dict[int, Part]) -> _core.Tensor:
    """Copy buffers behind each other, and say where they are."""
    begin = 0
    for index in left:
        parts[index] = (number, begin, large[index].nbytes)
        begin += -(-large[index].nbytes // _ALIGNMENT) * _ALIGNMENT
    whole = _core.empty(_session.current(), "uint8", [begin])
    target = memoryview(whole)
    for index in left:
        _, begin, size = parts[index]
        target[begin : begin + size] = large[index]
    return whole
