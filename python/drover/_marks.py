"""Marks of values, by which a process knows whether another one has changed what it sent before."""

from __future__ import annotations

import copyreg
import ctypes
import dis
import functools
import hashlib
import itertools
import pickle
import re
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

from drover import _core, _main_module, _session

__all__ = ["mark", "module_of", "used_by"]

_MAIN = "__main__"
_CHILDS_MAIN = "__mp_main__"  # the name under which children import it
_GLOBAL_OPERATIONS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"})
_CACHED = type(functools.lru_cache(len))
_DEFINITIONS = (types.FunctionType, type, _CACHED)
_STRING = re.compile(rb"\x8c.([A-Za-z_][0-9A-Za-z_]*)", re.DOTALL)  # a short one in a pickle, such as a name
_LARGE = 1 << 20  # bytes of a buffer that has no names
_SHORT = (int, float, bool, str, type(None))  # values that are their own mark, if they are not too long
_MOST_LETTERS = 24
_MOST_BYTES = 64 << 20  # of a value that is compared by its contents

_numbers = itertools.count()
_identities: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def module_of(function: types.FunctionType) -> str | None:
    """Return the name of the module whose globals a function has; None if they belong to no module."""
    name = function.__globals__.get("__name__")
    if name == _CHILDS_MAIN:  # whose functions have other globals than the module: runpy copies them
        return _MAIN
    if not isinstance(name, str) or getattr(sys.modules.get(name), "__dict__", None) is not function.__globals__:
        return None
    return name


@functools.lru_cache(maxsize=1024)
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of globals that a function uses, including functions inside of it."""
    found = {one.argval: None for one in dis.get_instructions(code) if one.opname in _GLOBAL_OPERATIONS}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found.update(dict.fromkeys(_names_in(inner)))
    return tuple(found)


def used_by(function: types.FunctionType, is_by_value: bool = True) -> dict[str, Any]:
    """Return the globals that a function uses, directly or by others of its module.

    With `is_by_value`, others only if they are sent by value, too.
    """
    space, found = function.__globals__, dict[str, Any]()
    waiting: list[Any] = [function]
    seen = set[int]()
    while waiting:
        thing = waiting.pop()
        for part in _functions_in(thing):
            if part.__globals__ is space and id(part) not in seen:
                seen.add(id(part))
                more = {name: space[name] for name in _names_in(part.__code__) if name in space}
                found.update(more)
                others = (one for one in (*more.values(), *_closed_over(part)) if isinstance(one, _DEFINITIONS))
                waiting += [one for one in others if not (is_by_value and _name_for_all(one))]
    return found


def _closed_over(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            continue


def _functions_in(thing: Any) -> Iterator[types.FunctionType]:
    """Yield a function, or the methods of a class and of its bases that are sent with it."""
    if isinstance(thing, _CACHED):
        thing = thing.__wrapped__
    if isinstance(thing, types.FunctionType):
        yield thing
    if not isinstance(thing, type):
        return
    for kind in thing.__mro__:
        if kind.__module__ == thing.__module__:
            for member in vars(kind).values():
                parts = (member.fget, member.fset) if isinstance(member, property) else (member,)
                for part in (getattr(one, "__func__", one) for one in parts):
                    if isinstance(part, types.FunctionType):
                        yield part


def mark(value: Any) -> str:
    """Return a text that is equal for equal values, also in another process; one of its own if it cannot be."""
    try:
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, _DEFINITIONS):
            return _name_for_all(value) or _identities.setdefault(value, _unique())
        if type(value).__module__.startswith("drover."):  # such as a queue: the same for all who have it
            return _identities.setdefault(value, _unique())
        return _contents(value)
    except Exception:  # it cannot be compared
        return _unique()


def _unique() -> str:
    return f"{_main_module.own_id()}.{next(_numbers)}"


def _name_for_all(thing: Any) -> str | None:
    """Return the name under which all processes have a function or class; None if it is sent by value."""
    if thing.__module__ == _MAIN:
        return f"{_MAIN}:{thing.__qualname__}" if _main_module.is_known_to_children(thing) else None
    found: Any = sys.modules.get(thing.__module__)
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    module = _MAIN if thing.__module__ == _CHILDS_MAIN else thing.__module__
    return f"{module}:{thing.__qualname__}" if found is thing else None


class _Digest:
    """A file that keeps only a digest of what is written."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self._size = 0
        self._names: set[bytes] | None = None  # after the first reference to the main module

    def write(self, data: Any) -> None:
        """Add bytes. Raises OverflowError if they become too many."""
        view = memoryview(data)
        self._size += view.nbytes
        if self._size > _MOST_BYTES:
            raise OverflowError
        self._hash.update(view)
        if view.nbytes < _LARGE and (self._names is not None or b"__main__" in bytes(view)):
            self._names = {*(self._names or ()), *_STRING.findall(view)}

    def add(self, buffer: pickle.PickleBuffer) -> None:
        """Add a buffer; of one in drover's memory, which all processes share, only its place."""
        raw = buffer.raw()
        if _core.find_shared(_session.current(), raw) is None:
            self.write(raw)
        else:
            place = ctypes.addressof(ctypes.c_char.from_buffer(raw)) if raw.nbytes and not raw.readonly else 0
            self.write(f"{place} {raw.nbytes}".encode())

    def text(self) -> str:
        """Return the digest, also of the classes of the main module, which may be defined anew under their names."""
        for name in sorted(self._names or ()):
            thing = vars(sys.modules["__main__"]).get(name.decode())
            if isinstance(thing, _DEFINITIONS):
                self._hash.update(mark(thing).encode())
        return self._hash.hexdigest()


def _contents(value: Any) -> str:
    """Return a digest of a pickle. Raises what pickling raises, and TypeError for a tensor on a GPU."""
    if type(value) in _SHORT and len(text := repr(value)) < _MOST_LETTERS:
        return text
    digest = _Digest()
    pickler = pickle.Pickler(digest, 5, buffer_callback=digest.add)  # type: ignore[arg-type]
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "Tensor"):
        pickler.dispatch_table = {**copyreg.dispatch_table, torch.Tensor: _reduce_on_cpu}
    pickler.dump(value)
    return digest.text()


def _reduce_on_cpu(tensor: Any) -> Any:
    if not tensor.is_cpu:
        raise TypeError("a tensor of a GPU would be copied")
    elements = tensor.detach().contiguous().flatten().view(sys.modules["torch"].uint8).numpy()
    return tuple, (str(tensor.dtype), tensor.shape, tensor.requires_grad, pickle.PickleBuffer(elements))
