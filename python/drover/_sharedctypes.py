"""Ctypes values and arrays in shared memory that behave like multiprocessing's."""

from __future__ import annotations

import ctypes
import os
import threading
from multiprocessing import sharedctypes
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray, SynchronizedString, typecode_to_type
from typing import TYPE_CHECKING, Any, Literal, overload

from drover import _core, _main_module, _objects, _session, _synchronize
from drover._errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection
    from ctypes import _SimpleCData

    from drover._types import FloatCode, IntegerCode, Item, Result

__all__ = ["Array", "Makers", "RawArray", "RawValue", "Value", "copy", "synchronized"]

_TYPES = typecode_to_type
_ARENA = 2 << 20
_SMALL = 256 << 10  # bytes; larger objects get a block of their own
_ALIGNMENT = 64


class Makers:
    """Makes values and arrays; the base class of the context, with multiprocessing's names."""

    @overload
    def RawValue(self, typecode_or_type: IntegerCode, value: int = 0, /) -> _SimpleCData[int]: ...
    @overload
    def RawValue(self, typecode_or_type: FloatCode, value: float = 0.0, /) -> _SimpleCData[float]: ...
    @overload
    def RawValue(self, typecode_or_type: type[Result], *args: Any) -> Result: ...
    @overload
    def RawValue(self, typecode_or_type: str, value: float | bytes = 0, /) -> Any: ...
    def RawValue(self, typecode_or_type: Any, *args: Any) -> Any:  # noqa: N802
        """Create a ctypes value in shared memory, without a lock.

        The memory is freed when the last process drops the value, whichever process created it.
        """
        made = _new(_TYPES.get(typecode_or_type, typecode_or_type))
        made.__init__(*args)
        return made

    @overload
    def RawArray(
        self, typecode_or_type: IntegerCode, size_or_initializer: int | Collection[int]
    ) -> ctypes.Array[Any]: ...
    @overload
    def RawArray(
        self, typecode_or_type: FloatCode, size_or_initializer: int | Collection[float]
    ) -> ctypes.Array[Any]: ...
    @overload
    def RawArray(
        self, typecode_or_type: type[Any], size_or_initializer: int | Collection[Any]
    ) -> ctypes.Array[Any]: ...
    @overload
    def RawArray(
        self, typecode_or_type: str, size_or_initializer: int | bytes | Collection[float]
    ) -> ctypes.Array[Any]: ...
    def RawArray(self, typecode_or_type: Any, size_or_initializer: Any) -> Any:  # noqa: N802
        """Create a ctypes array in shared memory, without a lock: of that many zeros, or of those items."""
        kind = _TYPES.get(typecode_or_type, typecode_or_type)
        if isinstance(size_or_initializer, int):
            return _new(kind * size_or_initializer)
        made = _new(kind * len(size_or_initializer))
        made.__init__(*size_or_initializer)
        return made

    @overload
    def Value(
        self, typecode_or_type: IntegerCode, value: int = 0, /, *, lock: Literal[False], ctx: Any = None
    ) -> _SimpleCData[int]: ...
    @overload
    def Value(
        self, typecode_or_type: FloatCode, value: float = 0.0, /, *, lock: Literal[False], ctx: Any = None
    ) -> _SimpleCData[float]: ...
    @overload
    def Value(self, typecode_or_type: type[Result], *args: Any, lock: Literal[False], ctx: Any = None) -> Result: ...
    @overload
    def Value(
        self, typecode_or_type: IntegerCode, value: int = 0, /, *, lock: Any = True, ctx: Any = None
    ) -> Synchronized[int]: ...
    @overload
    def Value(
        self, typecode_or_type: FloatCode, value: float = 0.0, /, *, lock: Any = True, ctx: Any = None
    ) -> Synchronized[float]: ...
    @overload
    def Value(
        self, typecode_or_type: type[_SimpleCData[Item]], *args: Any, lock: Any = True, ctx: Any = None
    ) -> Synchronized[Item]: ...
    @overload
    def Value(self, typecode_or_type: type[Any], *args: Any, lock: Any = True, ctx: Any = None) -> Any: ...
    @overload
    def Value(
        self, typecode_or_type: str, value: float | bytes = 0, /, *, lock: Any = True, ctx: Any = None
    ) -> Any: ...
    def Value(self, typecode_or_type: Any, *args: Any, lock: Any = True, ctx: Any = None) -> Any:  # noqa: N802
        """Create a ctypes value with a lock: a new RLock, or `lock` if it is one; without a lock if that is False."""
        return _guarded(self.RawValue(typecode_or_type, *args), lock, ctx)

    @overload
    def Array(
        self,
        typecode_or_type: str | type[Any],
        size_or_initializer: int | bytes | Collection[Any],
        *,
        lock: Literal[False],
        ctx: Any = None,
    ) -> ctypes.Array[Any]: ...
    @overload
    def Array(
        self,
        typecode_or_type: IntegerCode,
        size_or_initializer: int | Collection[int],
        *,
        lock: Any = True,
        ctx: Any = None,
    ) -> SynchronizedArray[int]: ...
    @overload
    def Array(
        self,
        typecode_or_type: FloatCode,
        size_or_initializer: int | Collection[float],
        *,
        lock: Any = True,
        ctx: Any = None,
    ) -> SynchronizedArray[float]: ...
    @overload
    def Array(
        self, typecode_or_type: Literal["c"], size_or_initializer: int | bytes, *, lock: Any = True, ctx: Any = None
    ) -> SynchronizedString: ...
    @overload
    def Array(
        self,
        typecode_or_type: type[_SimpleCData[Item]],
        size_or_initializer: int | Collection[Any],
        *,
        lock: Any = True,
        ctx: Any = None,
    ) -> SynchronizedArray[Item]: ...
    @overload
    def Array(
        self,
        typecode_or_type: type[Any],
        size_or_initializer: int | Collection[Any],
        *,
        lock: Any = True,
        ctx: Any = None,
    ) -> Any: ...
    @overload
    def Array(
        self,
        typecode_or_type: str,
        size_or_initializer: int | bytes | Collection[float],
        *,
        lock: Any = True,
        ctx: Any = None,
    ) -> Any: ...
    def Array(  # noqa: N802
        self, typecode_or_type: Any, size_or_initializer: Any, *, lock: Any = True, ctx: Any = None
    ) -> Any:
        """Create a ctypes array with a lock: a new RLock, or `lock` if it is one; without a lock if that is False."""
        return _guarded(self.RawArray(typecode_or_type, size_or_initializer), lock, ctx)


_makers = Makers()
RawValue, RawArray, Value, Array = _makers.RawValue, _makers.RawArray, _makers.Value, _makers.Array


def copy(obj: Any) -> Any:
    """Copy a ctypes object into shared memory."""
    made = _new(type(obj))
    ctypes.pointer(made)[0] = obj
    return made


def synchronized(obj: Any, lock: Any = None, ctx: Any = None) -> Any:
    """Wrap a ctypes object together with a lock: `lock`, or a new RLock."""
    if not lock:
        lock = ctx.RLock() if ctx is not None else _synchronize.RLock()
    made = sharedctypes.synchronized(obj, lock, ctx)
    # The standard class refuses to be sent, because its memory cannot be; ours can.
    _objects.reducers.setdefault(type(made), _reduce_synchronized)
    return made


def _guarded(obj: Any, lock: Any, ctx: Any) -> Any:
    if lock is False:
        return obj
    if lock in (True, None):
        lock = None
    elif not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    return synchronized(obj, lock, ctx)


class _Arena:
    """A block in which small objects lie side by side, so that a message can carry any number of them.

    Memory is handed out once, from front to back. The arena lives as long as any object in it, in any process.
    """

    def __init__(self, session: _core.Session) -> None:
        self.session = session
        self._memory = memoryview(_core.empty(session, "uint8", [_ARENA], "cpu"))
        self._used = 0

    def take(self, size: int) -> memoryview | None:
        begin = self._used
        if begin + size > _ARENA:
            return None
        # Each object has its own cache lines: different processes write to them.
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return self._memory[begin : begin + size]


_guard = threading.RLock()  # reentrant: garbage collection inside _allocate may run code that creates a value
_arena: _Arena | None = None


def _allocate(size: int) -> Any:
    global _arena  # noqa: PLW0603 (one for the process)
    session = _session.current()
    if size > _SMALL:
        return _core.empty(session, "uint8", [size], "cpu")
    with _guard:
        taken = _arena.take(size) if _arena is not None and _arena.session is session else None
        if taken is None:
            _arena = _Arena(session)
            taken = _arena.take(size)
    return taken


def _forget() -> None:
    """Reset this module in a forked child: the arena stays with the parent."""
    global _arena, _guard  # noqa: PLW0603
    _arena = None
    _guard = threading.RLock()


os.register_at_fork(after_in_child=_forget)


def _new(kind: type[Any]) -> Any:
    """Create an object filled with zeros."""
    made = _view(kind, _allocate(max(1, ctypes.sizeof(kind))))
    ctypes.memset(ctypes.addressof(made), 0, ctypes.sizeof(made))
    return made


def _view(kind: type[Any], memory: Any) -> Any:
    """Create an object that lies in `memory` and holds it, which is how a later send recognises it as shared."""
    if kind not in _objects.reducers:
        _objects.reducers[kind] = _reduce
        # Raises if the object is pickled for a process of another context; a silent copy would be worse.
        ForkingPickler._extra_reducers.setdefault(kind, _reduce)
    return kind.from_buffer(memory)


def _reduce(obj: Any) -> Any:
    """Reduce a ctypes object to a handle of its shared memory; one that lies elsewhere, to its own reduction."""
    memory = _core.find_shared(_session.current(), obj) if ctypes.sizeof(obj) else None
    if memory is None and hasattr(obj, "_wrapper"):
        return sharedctypes.reduce_ctype(obj)
    kind, lengths = type(obj), []
    while issubclass(kind, ctypes.Array):  # array types cannot be pickled by name
        lengths.append(kind._length_)
        kind = kind._type_
    if memory is not None:
        _check(kind)
        return _rebuild, (kind, lengths, _objects.arrays().add_tensor(memory))
    return (_rebuild, (kind, lengths, None)) if 0 in lengths else obj.__reduce_ex__(_objects.PROTOCOL)


def _check(kind: type[Any]) -> None:
    """Raise if the receiver could not import the type: ctypes types cannot be sent by value."""
    if kind.__module__ == "__main__" and not _main_module.is_known_to_children(kind):
        raise InvalidArgument(
            f"cannot send a shared {kind.__name__}: its class is in a main module that children do not import",
            "define the class in another module, or put the start of the program below `if __name__ == '__main__':`",
        )


def _rebuild(kind: Any, lengths: list[int], number: int | None) -> Any:
    for length in reversed(lengths):
        kind = kind * length
    return _new(kind) if number is None else _view(kind, _objects.carried(number))


def _reduce_synchronized(guarded: Any) -> Any:
    return synchronized, (guarded._obj, guarded._lock)


for _kind in (Synchronized, SynchronizedArray, SynchronizedString):
    _objects.reducers[_kind] = _reduce_synchronized
