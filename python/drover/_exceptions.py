"""Exceptions of tasks in a form that arrives as they are, whatever their constructors.

An exception is pickled as a call of its class with `args`. That fails, or makes another exception, if the constructor
takes anything else. Here the exception is made without its constructor, and gets its state.
"""

from __future__ import annotations

import pickle
import types
from typing import Any

__all__ = ["is_same", "portable"]

_MEMBERS = (types.MemberDescriptorType, types.GetSetDescriptorType)  # such as errno of OSError, or slots
_GENERAL = frozenset(
    {"args", "__cause__", "__context__", "__traceback__", "__suppress_context__", "__dict__", "__weakref__"}
)
_DEEPEST = 16  # groups in groups


def is_same(back: BaseException, error: BaseException) -> bool:
    """Return whether an exception seems to have come back as it was."""
    return type(back).__qualname__ == type(error).__qualname__ and _shown(back) == _shown(error)


def _shown(error: BaseException) -> Any:
    try:
        return str(error), repr(error), sorted(error.__dict__)
    except Exception:
        return None


def portable(error: BaseException, depth: int = 0) -> Any:
    """Return what is unpickled as this exception: itself if its class has a way of its own."""
    methods = [vars(kind).get(name) for kind in type(error).__mro__ for name in ("__reduce__", "__reduce_ex__")]
    if any(isinstance(method, types.FunctionType) for method in methods):
        return error
    parts = getattr(error, "exceptions", None)
    is_group = isinstance(parts, tuple) and all(isinstance(part, BaseException) for part in parts)
    if not is_group or len(error.args) < 2 or depth == _DEEPEST:
        return _Portable(type(error), error.args, None, _state_of(error))
    inner = [portable(part, depth + 1) for part in parts]
    return _Portable(type(error), (error.args[0], None, *error.args[2:]), inner, _state_of(error))


class _Portable:
    """What is pickled in the place of an exception."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __reduce__(self) -> Any:
        return _rebuild, self._parts


def _state_of(error: BaseException) -> dict[str, Any]:
    """Return the attributes, whether they lie in a dict or in members of classes written in C."""
    state = {}
    for kind in type(error).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, _MEMBERS) and name not in _GENERAL and name not in state:
                try:
                    state[name] = getattr(error, name)
                except AttributeError:  # an empty slot
                    continue
    state.pop("exceptions", None)
    # To set an attribute to None is not always the same as to leave it: OSError would show a second file.
    return {name: value for name, value in state.items() if value is not None} | error.__dict__


def _rebuild(kind: type, args: tuple[Any, ...], inner: list[Any] | None, state: dict[str, Any]) -> BaseException:
    if inner is not None:
        args = (args[0], inner, *args[2:])
    try:
        made = kind.__new__(kind, *args)
    except TypeError:  # a class with a __new__ of its own
        made = BaseException.__new__(kind)
    if not isinstance(made, BaseException):
        raise pickle.UnpicklingError(
            f"{kind.__qualname__}.__new__ returned {type(made).__qualname__}, not an exception"
        )
    made.args = args
    for name, value in state.items():
        try:
            setattr(made, name, value)
        except (AttributeError, TypeError):  # read-only, and set by __new__
            continue
    return made
