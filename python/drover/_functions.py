"""Functions as bytes: how tasks name what they run.

A function is written as three letters and its pickle: how it is called, whether workers keep it, and how many tensors
belong to it. Small pickles go with every task, larger ones lie in shared memory that tasks refer to.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import types
import weakref
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

from drover import _core, _objects, _session

__all__ = ["APPLIED", "EACH", "EACH_SPREAD", "MANY", "MANY_SPREAD", "decode", "encode", "title_of"]

# What a task's object is: (args, kwargs), one argument, a tuple of arguments, or a sequence of either.
APPLIED, EACH, EACH_SPREAD, MANY, MANY_SPREAD = b"aesmt"

_SMALL = 1024
_KEPT, _FRESH, _KEPT_BESIDE, _FRESH_BESIDE = b"kfKF"
_HEAD = 3

_numbers = itertools.count()
_by_name: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()


def title_of(function: Any) -> str:
    """Give a name of a function for people."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return str(name or type(function).__qualname__)[:100]


def _is_kept(function: Any) -> bool:
    """Tell whether one copy serves all tasks of a worker: not if it may be an object that its calls change."""
    if hasattr(type(function), "must_be_kept"):
        return True
    if isinstance(function, types.BuiltinFunctionType):
        return function.__self__ is None or isinstance(function.__self__, types.ModuleType)
    return isinstance(function, (types.FunctionType, type))


def encode(function: Callable[..., Any], way: int) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Write a function. Raises what pickling raises."""
    if isinstance(function, types.FunctionType) and (known := _by_name.get(function)) is not None:
        return bytes((way, _KEPT, 0)) + known, ()
    payload, tensors = _objects.dumps(function)
    is_kept = _is_kept(function)
    if len(payload) < _SMALL and not tensors:
        if isinstance(function, types.FunctionType) and b"cloudpickle" not in payload:
            _by_name[function] = payload
        return bytes((way, _KEPT if is_kept else _FRESH, 0)) + payload, ()
    # Tasks that have the same bytes have the same function, so what lies beside them has a number.
    whole = [_core.copied(_session.current(), payload), *tensors]
    number = f"{os.getpid()}.{next(_numbers)}".encode()
    return bytes((way, _KEPT_BESIDE if is_kept else _FRESH_BESIDE, len(whole))) + number, whole


def decode(
    function: bytes, tensors: Sequence[_core.Tensor]
) -> tuple[tuple[Callable[[Any], Any], int, str], Callable[[], bool] | None]:
    """Give what to call with a task's object, the number of its own tensors and its title.

    If it is to be kept, then also what tells whether it must stay, however many are kept.
    """
    way, storage, count = function[:_HEAD]
    if storage in (_KEPT, _FRESH):
        call = pickle.loads(memoryview(function)[_HEAD:])
    else:
        call = _objects.loads(memoryview(tensors[0]), tensors[1:count])
    lasting = getattr(call, "must_be_kept", _need_not_be_kept) if storage in (_KEPT, _KEPT_BESIDE) else None
    return (_spread(call, way), count, title_of(call)), lasting


def _need_not_be_kept() -> bool:
    return False


def _spread(call: Callable[..., Any], way: int) -> Callable[[Any], Any]:
    if way == APPLIED:
        return lambda given: call(*given[0], **given[1])
    if way == EACH_SPREAD:
        return lambda items: call(*items)
    if way == MANY:
        return lambda items: list(map(call, items))
    if way == MANY_SPREAD:
        return lambda items: list(starmap(call, items))
    return call
