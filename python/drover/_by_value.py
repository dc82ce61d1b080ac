"""Functions and classes by value: cloudpickle, with the namespaces of functions (see `_namespaces`)."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

from drover import _classes, _main_module, _marks, _namespaces

__all__ = ["Pickler"]


_Cached = type(functools.lru_cache(len))


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Rebuild a function with a cache, which is empty."""
    return functools.lru_cache(**parameters)(function)


class Pickler(cloudpickle.Pickler):
    """cloudpickle's, whose functions say which namespace they belong to."""

    def reducer_override(self, obj: Any) -> Any:
        """Send what children have in their main module by its name, other functions and classes by value."""
        is_of_main = isinstance(obj, (types.FunctionType, type)) and obj.__module__ == "__main__"
        if is_of_main and _main_module.is_known_to_children(obj):
            return NotImplemented
        if isinstance(obj, _Cached) and obj.__module__ == "__main__" and not _main_module.is_known_to_children(obj):
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        reduced = super().reducer_override(obj)
        return _classes.reduce(reduced) if isinstance(obj, type) and isinstance(reduced, tuple) else reduced

    def _function_getnewargs(self, func: types.FunctionType) -> Any:
        key = id(func.__globals__)
        if key not in self.globals_ref and (name := _marks.module_of(func)) is not None:
            self.globals_ref[key] = _Space(name, func)
        return super()._function_getnewargs(func)

    def _dynamic_function_reduce(self, func: types.FunctionType) -> Any:
        reduced = super()._dynamic_function_reduce(func)
        space, slots = reduced[1][1], reduced[2][1]
        if isinstance(space, _Space):
            slots["__globals__"] = _Values(space, slots["__globals__"])
        return reduced


class _Space(dict[str, Any]):
    """Stands for the globals of a module in a message."""

    def __init__(self, module: str, function: types.FunctionType) -> None:
        super().__init__()
        self._module = module
        self._marks = {name: _marks.mark(value) for name, value in _marks.used_by(function).items()}

    def __reduce__(self) -> Any:
        return _namespaces.open_space, (self._module, _main_module.own_id(), dict(self), self._marks)


class _Values:
    """Stands for the globals that a function uses, with their values."""

    def __init__(self, space: _Space, values: dict[str, Any]) -> None:
        self._space, self._values = space, values

    def __reduce__(self) -> Any:
        return _namespaces.accept, (self._space, self._values)
