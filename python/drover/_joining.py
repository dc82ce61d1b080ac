"""Packs the buffers of a message into fewer tensors: parts of one array share one, the rest is copied together."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

from drover import _core, _session

__all__ = ["WHOLE", "Join", "Part", "join", "join_alike", "join_shared"]

_ALIGNMENT = 64

Part = tuple[int, int, int]  # index of the tensor, offset, size in bytes
WHOLE = (1 << 64) - 1  # as a size: the whole tensor, with its shape
Join = Callable[[list[_core.Tensor]], tuple[list[_core.Tensor], list[Part]]]  # returns fewer tensors and the parts


class _Run(NamedTuple):
    """Buffers that lie in one shared tensor."""

    begin: int
    tensor: _core.Tensor
    members: list[tuple[int, int]]  # index and address of each buffer


def join(large: list[memoryview], room: int, first: int) -> tuple[list[_core.Tensor], list[Part]]:
    """Return at most `room` tensors, numbered from `first`, and the part of them that each buffer is.

    Buffers in shared memory are shared as far as `room` allows, the others are copied.
    """
    runs = sorted(_runs(large), key=lambda run: -len(run.members))
    if len(runs) > room or sum(len(run.members) for run in runs) < len(large):
        del runs[room - 1 :]  # the last tensor is for copies
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
    """Join tensors that have the same join function; those without one stay as they are."""
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
    """Return the fewest tensors that hold these shared buffers, and the part that each buffer is."""
    runs = _runs(shared)
    return join(shared, len(runs) + 1, 0)


def _runs(large: list[memoryview]) -> list[_Run]:
    """Find the buffers in shared memory; neighbours in one tensor form one run."""
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
    """Return the tensor that spans these addresses, if there is one. The memory is not read: it may not be ours."""
    return _core.find_shared((ctypes.c_ubyte * (end - begin)).from_address(begin))


def _copied(large: list[memoryview], left: list[int], number: int, parts: dict[int, Part]) -> _core.Tensor:
    """Copy buffers into one tensor, and enter their parts."""
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
