"""Moves the arrays in a structure into shared memory: the walk, and numpy arrays. Other libraries add their types."""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

from drover import _arrays, _core, _session

__all__ = ["Mover", "movers", "share"]

# Moves one object: returns the shared one, which is the same object if it could be moved in place.
Mover = Callable[["_Walk", Any], Any]
movers: dict[type, Mover] = {}


class _Walk:
    """One call of `share`: what it has moved, so that objects that share memory still do afterwards."""

    def __init__(self) -> None:
        self._moved: dict[int, tuple[Any, Any]] = {}  # by id of the original, with the original
        self.memories: dict[Any, Any] = {}  # for movers: the new memory of each old one, by a key that they choose
        self.at_end: dict[str, Callable[[], None]] = {}  # for movers: called once after the walk, by name
        self._changes: list[Callable[[], object]] = []  # of containers: made last, so that an error leaves them as is

    def move(self, thing: Any) -> Any:
        if id(thing) in self._moved:
            return self._moved[id(thing)][1]
        # Set before its parts are moved, since a structure may contain itself.
        self._moved[id(thing)] = thing, thing
        moved = self._move(thing)
        self._moved[id(thing)] = thing, moved
        return moved

    def _move(self, thing: Any) -> Any:
        for kind in type(thing).__mro__:
            if (mover := movers.get(kind)) is not None:
                return mover(self, thing)
        if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            self._move_fields(thing)
        return thing

    def _move_fields(self, thing: Any) -> None:
        for field in dataclasses.fields(thing):
            if (old := getattr(thing, field.name, None)) is not (new := self.move(old)):
                self.change(object.__setattr__, thing, field.name, new)  # frozen ones too

    def change(self, call: Callable[..., object], *arguments: Any) -> None:
        """Change a container once everything has been moved."""
        self._changes.append(functools.partial(call, *arguments))

    def finish(self) -> None:
        for call in (*self.at_end.values(), *self._changes):
            call()


def share(thing: Any) -> Any:
    """Move all arrays in a structure into shared memory; return the structure, which an error leaves as it was."""
    _add_numpy()
    walk = _Walk()
    moved = walk.move(thing)
    walk.finish()
    return moved


def _move_dict(walk: _Walk, items: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in list(items.items()):
        walk.move(key)  # such as the parameters of an optimizer's state
        if (new := walk.move(value)) is not value:
            walk.change(items.__setitem__, key, new)
    return items


def _move_list(walk: _Walk, items: Any) -> Any:
    for index, value in enumerate(items):
        if (new := walk.move(value)) is not value:
            walk.change(items.__setitem__, index, new)
    return items


def _move_tuple(walk: _Walk, items: tuple[Any, ...]) -> tuple[Any, ...]:
    moved = [walk.move(value) for value in items]
    if all(new is old for new, old in zip(moved, items, strict=True)):
        return items
    make = getattr(type(items), "_make", type(items))  # a namedtuple takes its values one by one
    return make(moved)


def _move_set(walk: _Walk, items: Any) -> Any:
    for value in items:
        walk.move(value)  # what can be in a set and has memory, such as a tensor, is moved in place
    return items


movers.update(
    {
        dict: _move_dict,
        list: _move_list,
        collections.deque: _move_list,
        tuple: _move_tuple,
        set: _move_set,
        frozenset: _move_set,
    }
)


def _add_numpy() -> None:
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray"):
        movers.setdefault(numpy.ndarray, _move_array)


def _move_array(walk: _Walk, array: Any) -> Any:
    """Return an array in shared memory. Parts of one array, if the structure has several, share it again."""
    if array.nbytes == 0 or array.dtype.hasobject:
        return array
    plain = array.view(sys.modules["numpy"].ndarray)
    if (moved := _move_plain(walk, plain)) is plain:
        return array
    moved.flags.writeable = array.flags.writeable
    if type(array) is not type(plain):
        moved = moved.view(type(array))
        moved.__dict__.update(array.__dict__)  # such as the mask of a masked array
    return moved


def _move_plain(walk: _Walk, array: Any) -> Any:
    owner = array
    while isinstance(owner.base, type(array)):
        owner = owner.base
    if not owner.flags.forc or owner.dtype.hasobject:
        return _arrays.array(array)
    flat = (owner if owner.flags.c_contiguous else owner.T).reshape(-1).view("u1")
    if _core.find_shared(_session.current(), flat) is not None:
        return array
    key = "numpy", flat.ctypes.data, flat.nbytes
    is_whole = key not in walk.memories and array.nbytes == flat.nbytes
    if is_whole:
        walk.memories[key] = _arrays.array(flat)
    elif key not in walk.memories:
        walk.memories[key] = _arrays.empty(flat.nbytes, "u1")  # only the parts of the structure use pages of it
    offset = array.ctypes.data - flat.ctypes.data
    made = type(array)(array.shape, array.dtype, walk.memories[key], offset, array.strides)
    if not is_whole:
        made[...] = array
    return made
