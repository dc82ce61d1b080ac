"""The globals of functions that are sent by value: in a worker, all functions of a module share one namespace.

A message has the values of the globals that its functions use, as the sender has them. A worker takes a value that is
new to it, or that the sender has changed. It keeps what its own code has set, such as an initializer, as long as the
sender has not changed it since. If a message changes values, its functions get a copy of the namespace with these
changes, so that tasks that wait behind it still see the values that were sent with them.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any

__all__ = ["accept", "follow", "is_parent", "note", "open_space"]

_MAIN = "__main__"
_RECORD = "__drover_record__"  # in a namespace


class _Record:
    """What is known about the names of a namespace."""

    def __init__(self, values: dict[str, Any], marks: dict[str, str]) -> None:
        self.values = values  # as they were received, or imported
        self.marks = marks

    def differs(self, space: dict[str, Any], name: str, mark: str) -> bool:
        """Return whether the sender has another value than it had, or than this process has imported."""
        if name not in space or name not in self.values or space[name] is not self.values[name]:
            return False  # new to this process, or set by its own code
        if name not in self.marks:
            from drover import _marks  # noqa: PLC0415 (imported only if needed)

            self.marks[name] = _marks.mark(space[name])
        return self.marks[name] != mark

    def bound_to(self, space: dict[str, Any]) -> list[str]:
        """Return the names of received functions that use this namespace, and of which a copy of it needs others."""
        values = self.values
        return [name for name in values if name in space and getattr(values[name], "__globals__", None) is space]


class _Followed:
    """The namespaces of this process, for messages of the process that started it."""

    def __init__(self) -> None:
        self.sender = ""
        self.has_main = False
        self.latest: dict[str, dict[str, Any]] = {}
        self.lock = threading.RLock()


_followed = _Followed()


def follow(preparation: dict[str, Any]) -> None:
    """Share namespaces among the functions that the parent sends, of which this is the preparation data."""
    _followed.sender = preparation["drover_parent"]
    _followed.has_main = "init_main_from_path" in preparation or "init_main_from_name" in preparation
    if _followed.has_main:
        _latest(_MAIN)  # notes its values as they were imported


def is_parent(sender: str) -> bool:
    """Return whether this is the process that started this one."""
    return sender == _followed.sender


def note(function: Any) -> None:
    """Note the values that a function of an imported module may change; called before an initializer runs."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return
    from drover import _marks  # noqa: PLC0415 (imported only if needed)

    if (module := _marks.module_of(function)) is not None:
        record = _latest(module)[_RECORD]
        for name, value in _marks.used_by(function, is_by_value=False).items():
            record.marks.setdefault(name, _marks.mark(value))


def _latest(module: str) -> dict[str, Any]:
    space = _followed.latest.get(module)
    if space is None:
        space = _imported(module)
        space[_RECORD] = _Record(dict(space), {})
        _followed.latest[module] = space
    return space


def _imported(module: str) -> dict[str, Any]:
    """Return the globals of a module if this process has imported it."""
    real = sys.modules.get(module) if module != _MAIN or _followed.has_main else None
    if real is None:
        return {}
    if module == _MAIN:  # of which runpy has made a copy, which its functions do not have
        for thing in vars(real).values():
            for function in (thing, *vars(thing).values()) if isinstance(thing, type) else (thing,):
                found = getattr(function, "__globals__", {})
                if isinstance(function, types.FunctionType) and found.get("__name__") == real.__name__:
                    return found
    return vars(real)


def open_space(module: str, sender: str, attributes: dict[str, Any], marks: dict[str, str]) -> dict[str, Any]:
    """Return the namespace for the functions of a message."""
    if not is_parent(sender):
        return attributes
    with _followed.lock:
        space = _latest(module)
        record = space[_RECORD]
        if changed := [name for name, mark in marks.items() if record.differs(space, name, mark)]:
            left_out = {*changed, *record.bound_to(space)}
            space = _followed.latest[module] = {name: space[name] for name in space if name not in left_out}
            record = space[_RECORD] = _Record(dict(record.values), dict(record.marks))
        for name, value in attributes.items():
            space.setdefault(name, value)
        record.marks.update({name: mark for name, mark in marks.items() if name not in space})
        return space


def accept(space: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that the namespace lacks."""
    if (record := space.get(_RECORD)) is None:
        return values
    new = {name: value for name, value in values.items() if name not in space}
    record.values.update(new)
    return new
