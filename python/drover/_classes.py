"""Classes that are sent by value: each process has one class for all messages, and its attributes are its own.

A process that receives a class makes it once, from the first message. What later messages say of it counts only if
they come from the parent: methods, which see the globals of the last message, and attributes that the parent has
changed since. What the code of the process itself has set stays, and a class that the process has defined is never
changed by others.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from cloudpickle import cloudpickle

from drover import _main_module, _marks, _namespaces

__all__ = ["reduce"]

_NOTHING = object()


class _Received:
    """What is known about a class that was received."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}  # as they were received
        self.marks: dict[str, str] = {}
        self.is_complete = False

    def lacks(self, opened: type, name: str, value: Any, marks: dict[str, str]) -> bool:
        """Return whether an attribute of a later message is new; not if the code of this process has set it."""
        if vars(opened).get(name, _NOTHING) is not self.values.get(name, _NOTHING):
            return False
        if name in marks:
            return marks[name] != self.marks.get(name)
        return hasattr(type(value), "__get__")


_received: weakref.WeakKeyDictionary[type, _Received] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def reduce(reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Turn cloudpickle's reduction of a class into one that is opened once in each process."""
    if reduced[0] not in (cloudpickle._make_skeleton_class, cloudpickle._make_skeleton_enum):
        return reduced
    make, arguments, state = reduced[:3]
    marks = {name: _marks.mark(value) for name, value in state[0].items() if not _is_definition(name, value)}
    return _open, (make, *arguments), (state, marks, _main_module.own_id()), None, None, _complete


def _is_definition(name: str, value: Any) -> bool:
    return name.startswith("__") or name == "_abc_impl" or hasattr(type(value), "__get__")


def _open(make: Callable[..., type], *arguments: Any) -> type:
    """Return the class; it is not made anew, which would run the code of its metaclass and bases again."""
    with _lock:  # no thread may find the class before it is known to be received
        known: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(arguments[-2])
        if known is not None:
            return known
        made = make(*arguments)
        _received.setdefault(made, _Received())
        return made


def _complete(opened: type, sent: tuple[Any, dict[str, str], str]) -> type:
    """Set the attributes that are new."""
    (attributes, slots), marks, sender = sent
    with _lock:
        known = _received.get(opened)
        if known is None:  # defined by this process
            return opened
        if known.is_complete:
            if not _namespaces.is_parent(sender):
                return opened
            attributes = {
                name: value for name, value in attributes.items() if known.lacks(opened, name, value, marks)
            }
        cloudpickle._class_setstate(opened, (attributes, slots))
        known.values.update(attributes)
        known.marks.update({name: mark for name, mark in marks.items() if name in attributes})
        known.is_complete = True
    return opened
