"""Makes "drover" a start method of multiprocessing: `multiprocessing.set_start_method("drover")`."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from multiprocessing import context, spawn
from typing import Any

__all__ = ["NAME", "STANDARD", "register", "without_foreign_method"]

NAME = "drover"
STANDARD = ("spawn", "forkserver", "fork")
_METHOD = "start_method"  # in preparation data

# What multiprocessing's default context makes, and drover's instead if its start method is "drover".
_MADE = (
    "Array",
    "Barrier",
    "BoundedSemaphore",
    "Condition",
    "Event",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Queue",
    "RLock",
    "RawArray",
    "RawValue",
    "Semaphore",
    "SimpleQueue",
    "Value",
    "set_forkserver_preload",
)


def register(ours: context.BaseContext) -> None:
    """Register drover's context under its name, and let multiprocessing's functions ask it."""
    context._concrete_contexts[NAME] = ours
    for name in _MADE:
        _redirect(context.BaseContext, name, lambda standard: functools.partial(_make, ours, standard))
    _redirect(context.DefaultContext, "get_all_start_methods", lambda standard: lambda own: [*standard(own), NAME])
    spawn.get_preparation_data = _preparation_without_ours(spawn.get_preparation_data)


def without_foreign_method(preparation: dict[str, Any]) -> dict[str, Any]:
    """Remove the start method from preparation data unless every interpreter has it.

    Only a process that has imported drover knows "drover", and only one that has imported loky knows "loky". The
    process that is started sets the method of its own context afterwards.
    """
    if preparation.get(_METHOD) not in STANDARD:
        preparation.pop(_METHOD, None)
    return preparation


def _make(ours: Any, standard: Any, asked: Any, /, *args: Any, **kwargs: Any) -> Any:
    is_ours = asked is context._default_context and asked._actual_context is ours
    return getattr(ours, standard.__name__)(*args, **kwargs) if is_ours else standard(asked, *args, **kwargs)


def _redirected(self: Any, *args: Any, _call: Any, **kwargs: Any) -> Any:
    return _call(self, *args, **kwargs)


def _redirect(owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
    """Change a function in place, since programs have references to it: `from multiprocessing import Queue`."""
    function = vars(owner)[name]
    standard = types.FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
    standard.__kwdefaults__ = function.__kwdefaults__
    function.__wrapped__ = standard  # so that its signature stays the same
    function.__code__ = _redirected.__code__
    function.__defaults__ = None
    function.__kwdefaults__ = {"_call": wrap(standard)}


def _preparation_without_ours(standard: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    @functools.wraps(standard)
    def get_preparation_data(name: str) -> dict[str, Any]:
        return without_foreign_method(standard(name))

    return get_preparation_data
