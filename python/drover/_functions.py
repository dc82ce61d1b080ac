"""Functions as bytes: how a task names the function that it runs.

A function is encoded as a header of three bytes and its pickle. The header says how the function is called, whether
workers cache it, and how many tensors belong to it. A small pickle travels with every task; a larger one lies in
shared memory that the tasks refer to.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import reprlib
import types
import weakref
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

from drover import _core, _objects, _session

__all__ = [
    "APPLIED",
    "EACH",
    "EACH_SPREAD",
    "MANY",
    "MANY_SPREAD",
    "METHOD",
    "decode",
    "describe_call",
    "encode",
    "function_of",
    "title_of",
]

# The form of a task's argument: (args, kwargs), one argument, a tuple of arguments, a sequence of either, or
# (method, args, kwargs).
APPLIED, EACH, EACH_SPREAD, MANY, MANY_SPREAD, METHOD = _WAYS = b"aesmto"

_SMALL = 1024
# Whether workers cache the function, and whether its pickle is inline or in shared memory.
_CACHED, _FRESH, _CACHED_SHARED, _FRESH_SHARED = b"kfKF"
_HEADER_BYTES = 3
_HEADERS = {way: bytes((way, _CACHED, 0)) for way in _WAYS}  # of the most frequent functions
_MOST_LETTERS = 200  # of a call in a message

_numbers = itertools.count()
_pickles: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()  # of functions pickled by reference
_pickle_of = (
    _pickles.data.get
)  # by the weak reference to a function: the dictionary's own get takes longer than the rest


def title_of(function: Any) -> str:
    """Return the name of a function for display."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return str(name or type(function).__qualname__)[:100]


def _is_cached(function: Any) -> bool:
    """Return whether all tasks of a worker may share one copy: not if calls could change the callable."""
    if hasattr(type(function), "must_be_kept"):
        return True
    if isinstance(function, types.BuiltinFunctionType):
        return function.__self__ is None or isinstance(function.__self__, types.ModuleType)
    return isinstance(function, (types.FunctionType, type))


def encode(
    function: Callable[..., Any], way: int, by_reference: bool = False
) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Encode a function as bytes and tensors. Raises what pickling raises; see `_objects.dumps`."""
    if isinstance(function, types.FunctionType) and (cached := _pickle_of(weakref.ref(function))) is not None:
        return _HEADERS[way] + cached, ()
    payload, tensors = _objects.dumps(function, by_reference=by_reference)
    is_cached = _is_cached(function)
    if len(payload) < _SMALL and not tensors:
        if isinstance(function, types.FunctionType) and b"cloudpickle" not in payload:
            _pickles[function] = payload
        return bytes((way, _CACHED if is_cached else _FRESH, 0)) + payload, ()
    # Workers look functions up by these bytes, so a number stands for the pickle in shared memory.
    whole = [_core.copied(_session.current(), payload), *tensors]
    number = f"{os.getpid()}.{next(_numbers)}".encode()
    return bytes((way, _CACHED_SHARED if is_cached else _FRESH_SHARED, len(whole))) + number, whole


def decode(
    function: bytes, tensors: Sequence[_core.Tensor]
) -> tuple[tuple[Callable[[Any], Any], int, str], Callable[[], bool] | None]:
    """Return the callable for a task's argument, the number of the function's tensors, and its title.

    The second result is None if the function must not be cached, otherwise a predicate for whether it must not be
    evicted from the cache.
    """
    way, storage, count = function[:_HEADER_BYTES]
    call = function_of(function, tensors)
    is_cached = storage in (_CACHED, _CACHED_SHARED)
    is_pinned = getattr(call, "must_be_kept", _need_not_be_kept) if is_cached else None
    return (_spread(call, way), count, title_of(call)), is_pinned


def function_of(function: bytes, tensors: Sequence[_core.Tensor]) -> Callable[..., Any]:
    """Return the function that was encoded, as it was before it was made callable with a task's argument."""
    if function[1] in (_CACHED, _FRESH):
        return pickle.loads(memoryview(function)[_HEADER_BYTES:])
    return _objects.loads(memoryview(tensors[0]), tensors[1 : function[2]])


def _need_not_be_kept() -> bool:
    return False


def describe_call(title: str, way: int, argument: Any) -> str:
    """Return a call as one line of code, with long values cut, for messages."""
    if way in (MANY, MANY_SPREAD):
        first = argument[0] if way == MANY_SPREAD else (argument[0],)
        others = f" and {len(argument) - 1} more" if len(argument) > 1 else ""
        return describe_call(title, EACH_SPREAD, first) + others
    if way in (APPLIED, METHOD):
        args, kwargs = argument[-2:]
    else:
        args, kwargs = tuple(argument) if way == EACH_SPREAD else (argument,), {}
    parts = [*map(reprlib.repr, args), *(f"{name}={reprlib.repr(value)}" for name, value in kwargs.items())]
    return f"{title}({', '.join(parts)})"[:_MOST_LETTERS]


def _spread(call: Callable[..., Any], way: int) -> Callable[[Any], Any]:
    if way == APPLIED:
        return lambda arguments: call(*arguments[0], **arguments[1])
    if way in (EACH_SPREAD, METHOD):
        return lambda items: call(*items)
    if way == MANY:
        return lambda items: list(map(call, items))
    if way == MANY_SPREAD:
        return lambda items: list(starmap(call, items))
    return call
