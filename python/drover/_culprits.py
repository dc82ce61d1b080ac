"""Which part of an object cannot be pickled, and where it is: for the errors of messages."""

from __future__ import annotations

import functools
import inspect
import pickle
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import process
from typing import Any

from drover._errors import InvalidArgument

__all__ = ["find", "name_argument", "name_initializer"]

# Errors of pickling. Others are raised by reducers of the program, and stay as they are.
_KINDS = (TypeError, AttributeError, pickle.PicklingError, InvalidArgument)
_DEEPEST = 64
_MOST_TRIES = 2000
_LONGEST_S = 2.0
_REMEDY = "\n  what to do: "  # see `_unsendable`
# How many steps lead from what a task is sent to one argument, by `_functions.APPLIED` and so on.
_ROOT_STEPS = dict(zip(b"aesmto", (2, 0, 1, 1, 2, 2), strict=True))


def find(thing: Any, error: BaseException, fails: Callable[[Any], bool]) -> None:
    """Find the part of `thing` because of which pickling raised `error`, and say in its message where that is."""
    if type(error) not in _KINDS or hasattr(error, "_drover_place"):
        return
    steps: list[str] = []
    path = [thing]
    tries = iter(range(_MOST_TRIES))
    end = time.monotonic() + _LONGEST_S

    def is_culprit(child: Any) -> bool:
        is_new = all(child is not one for one in path)  # a structure may contain itself
        return is_new and next(tries, None) is not None and time.monotonic() < end and fails(child)

    while len(steps) < _DEEPEST:
        found = next(((step, child) for step, child in _children(path[-1]) if is_culprit(child)), None)
        if found is None:
            break
        steps.append(found[0])
        path.append(found[1])
    error._drover_place = (str(error.args[0]) if error.args else "", steps)  # type: ignore[attr-defined]
    _name(error, _root_of(thing, steps))


def _name(error: BaseException, root: str, skipped: int | None = None) -> None:
    """Name the object of which `find` has found a part: the whole, or what its first steps lead to."""
    place = getattr(error, "_drover_place", None)
    if place is None:
        return
    message, steps = place
    path = "".join(steps[skipped or 0 :])
    if path or skipped is not None:
        what, mark, remedy = message.partition(_REMEDY)
        message = f"{what}; it is {root}{path}{mark}{remedy}"
    error.args = (message, *error.args[1:])
    if isinstance(error, InvalidArgument):
        error.message = message


def name_argument(error: BaseException, function: bytes, tensors: Any) -> None:
    """Name the parameter of a task's function whose argument cannot be sent."""
    from drover import _functions as form  # noqa: PLC0415 (imports `_objects`, which imports this module)

    steps = getattr(error, "_drover_place", ("", []))[1]
    way, used = function[0], _ROOT_STEPS[function[0]]
    if not hasattr(error, "_drover_place") or len(steps) < used:
        return
    try:
        call = form.function_of(function, tensors)
    except Exception:  # as if it had no names
        return
    is_first = way in (form.EACH, form.MANY)
    is_named = (way == form.APPLIED and steps[0] == "[1]") or (way == form.METHOD and steps[0] == "[2]")
    parameter = _parameter(call, "[0]" if is_first else steps[used - 1], is_position=not is_named)
    _name(error, parameter, used)


def name_initializer(error: BaseException, initializer: Any) -> None:
    """Name the parameter of an initializer whose argument cannot be sent."""
    steps = getattr(error, "_drover_place", ("", []))[1]
    if steps[:1] == ["[0]"]:
        _name(error, "initializer", 1)
    elif len(steps) > 1:
        _name(error, _parameter(initializer, steps[1], is_position=True), 2)


def _root_of(thing: Any, steps: list[str]) -> str:
    """Return the name of the whole object. Of a process, that is the parameter of its target."""
    if not isinstance(thing, process.BaseProcess) or len(steps) < 2 or steps[0] not in ("._args", "._kwargs"):
        return "object" if not isinstance(thing, process.BaseProcess) else "process"
    root = _parameter(thing._target, steps[1], is_position=steps[0] == "._args")
    del steps[:2]
    return root


def _parameter(function: Any, step: str, is_position: bool) -> str:
    """Return the name of the parameter that gets the argument at a position, or by a name."""
    if not is_position:
        return step[2:-2]
    position = int(step[1:-1])
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return f"args[{position}]"
    if position < len(parameters) and parameters[position].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        return parameters[position].name
    return f"args[{position}]"


def _children(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object, with the code that leads to each."""
    if isinstance(thing, dict):
        yield from ((f"[{key!r}]", value) for key, value in list(thing.items()))
        yield from ((f", in the key {key!r}", key) for key in list(thing))
    elif isinstance(thing, (list, tuple, deque)):
        yield from ((f"[{index}]", value) for index, value in enumerate(list(thing)))
    elif isinstance(thing, (set, frozenset)):
        yield from ((f", in the element {value!r}", value) for value in list(thing))
    elif isinstance(thing, functools.partial):
        yield from ((f".{part}", getattr(thing, part)) for part in ("func", "args", "keywords"))
    elif isinstance(thing, types.MethodType):
        yield ".__self__", thing.__self__
    elif isinstance(thing, types.FunctionType):
        yield from _variables(thing)
        return
    if not isinstance(thing, (type, types.ModuleType)):
        yield from _attributes(thing)


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function that is sent by value takes along."""
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f", in its variable {variable}", cell.cell_contents
        except ValueError:  # not set yet
            continue
    for variable in function.__code__.co_names:
        if variable in function.__globals__:
            yield f", in its global variable {variable}", function.__globals__[variable]


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    for attribute, value in list(getattr(thing, "__dict__", {}).items()):
        yield f".{attribute}", value
    for kind in type(thing).__mro__:
        for attribute in vars(kind).get("__slots__", ()) if not isinstance(vars(kind).get("__slots__"), str) else ():
            if attribute not in ("__dict__", "__weakref__") and hasattr(thing, attribute):
                yield f".{attribute}", getattr(thing, attribute)
