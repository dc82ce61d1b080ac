"""Values and arrays of ctypes in shared memory, with the behaviour of multiprocessing's."""

from __future__ import annotations

import ctypes
import os
import threading
from multiprocessing import sharedctypes
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray, SynchronizedString, typecode_to_type
from typing import Any

from drover import _core, _joining, _main_module, _objects, _session, _synchronize
from drover._errors import InvalidArgument, LimitReached

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]

_TYPES = typecode_to_type
_ARENA = 2 << 20
_SMALL = 256 << 10  # bytes; what is larger has a block of its own
_ALIGNMENT = 64
_MOST = 31  # tensors of one message, beside the one that buffers are joined in


def RawValue(typecode_or_type: Any, *args: Any) -> Any:  # noqa: N802 (here and below: multiprocessing's names)
    """Make a value of ctypes in shared memory, without a lock.

    The memory lives until no process has the value any more, and does not depend on who made it.
    """
    made = _new(_TYPES.get(typecode_or_type, typecode_or_type))
    made.__init__(*args)
    return made


def RawArray(typecode_or_type: Any, size_or_initializer: Any) -> Any:  # noqa: N802
    """Make an array of ctypes in shared memory, without a lock: of zeros, so many, or of what is given."""
    kind = _TYPES.get(typecode_or_type, typecode_or_type)
    if isinstance(size_or_initializer, int):
        return _new(kind * size_or_initializer)
    made = _new(kind * len(size_or_initializer))
    made.__init__(*size_or_initializer)
    return made


def Value(typecode_or_type: Any, *args: Any, lock: Any = True, ctx: Any = None) -> Any:  # noqa: N802
    """Make a value of ctypes with a lock: an RLock, or the one that is given; none if that is False."""
    return _guarded(RawValue(typecode_or_type, *args), lock, ctx)


def Array(typecode_or_type: Any, size_or_initializer: Any, *, lock: Any = True, ctx: Any = None) -> Any:  # noqa: N802
    """Make an array of ctypes with a lock: an RLock, or the one that is given; none if that is False."""
    return _guarded(RawArray(typecode_or_type, size_or_initializer), lock, ctx)


def copy(obj: Any) -> Any:
    """Copy an object of ctypes into shared memory."""
    made = _new(type(obj))
    ctypes.pointer(made)[0] = obj
    return made


def synchronized(obj: Any, lock: Any = None, ctx: Any = None) -> Any:
    """Wrap an object of ctypes so that a lock goes with it: an RLock, or the one that is given."""
    if not lock:
        lock = ctx.RLock() if ctx is not None else _synchronize.RLock()
    made = sharedctypes.synchronized(obj, lock, ctx)
    # Where the standard class refuses to travel, since its memory would not, this one need not.
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
    """Shared memory in which small objects lie side by side: so any number of them fits into one message.

    Given out from front to back and never again; it lives as long as anything in it, in any process.
    """

    def __init__(self, session: _core.Session) -> None:
        self.session = session
        self._memory = memoryview(_core.empty(session, "uint8", [_ARENA], "cpu"))
        self._used = 0

    def take(self, size: int) -> memoryview | None:
        begin = self._used
        if begin + size > _ARENA:
            return None
        # Each in cache lines of its own: processes write to them at the same time.
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return self._memory[begin : begin + size]


_guard = threading.RLock()  # what is dropped meanwhile may make a value, too
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
    """Leave the rest of the arena to the parent of a forked child."""
    global _arena, _guard  # noqa: PLW0603
    _arena = None
    _guard = threading.RLock()


os.register_at_fork(after_in_child=_forget)


def _new(kind: type[Any]) -> Any:
    """Make an object of zeros."""
    made = _view(kind, _allocate(max(1, ctypes.sizeof(kind))))
    ctypes.memset(ctypes.addressof(made), 0, ctypes.sizeof(made))
    return made


def _view(kind: type[Any], memory: Any) -> Any:
    """Make an object that lies in shared memory, and holds it: so it is found to be shared when it is sent."""
    if kind not in _objects.reducers:
        _objects.reducers[kind] = _reduce
        # Pickled for a process of another context it raises: a copy, made in silence, would be worse.
        ForkingPickler._extra_reducers.setdefault(kind, _reduce)
    return kind.from_buffer(memory)


def _reduce(obj: Any) -> Any:
    """Give what is sent: a handle of the memory; of objects that lie elsewhere what they give themselves."""
    memory = _core.find_shared(obj) if ctypes.sizeof(obj) else None
    if memory is None and hasattr(obj, "_wrapper"):
        return sharedctypes.reduce_ctype(obj)
    kind, lengths = type(obj), []
    while issubclass(kind, ctypes.Array):  # whose type has no name by which it could be found
        lengths.append(kind._length_)
        kind = kind._type_
    if memory is not None:
        _check(kind)
        return _rebuild, (kind, lengths, _objects.carry(memory, _join))
    return (_rebuild, (kind, lengths, None)) if 0 in lengths else obj.__reduce_ex__(_objects.PROTOCOL)


def _check(kind: type[Any]) -> None:
    """Raise for a type that could not be had at the other end: fields of ctypes cannot be sent by value."""
    if kind.__module__ == "__main__" and not _main_module.is_imported_by_children():
        raise InvalidArgument(
            f"a shared {kind.__name__} cannot be sent: its class is of a main module that others do not import",
            "define the class in a module, or let the program begin below `if __name__ == '__main__':`",
        )


def _rebuild(kind: Any, lengths: list[int], number: int | None) -> Any:
    for length in reversed(lengths):
        kind = kind * length
    return _new(kind) if number is None else _view(kind, _objects.carried(number))


def _join(tensors: list[_core.Tensor]) -> tuple[list[_core.Tensor], list[_joining.Part]]:
    """Make few of many: what lies in one arena is sent as one. Nothing is copied, since that would not be shared."""
    few, places = _joining.join_shared([memoryview(tensor) for tensor in tensors])
    if len(few) > _MOST:
        raise LimitReached(
            f"an object to be sent has {len(few)} values and arrays of more than {_SMALL} bytes in shared memory; "
            f"one message carries {_MOST}",
            "make one array and use parts of it, or send them in several messages",
        )
    return few, places


def _reduce_synchronized(guarded: Any) -> Any:
    return synchronized, (guarded._obj, guarded._lock)


for _kind in (Synchronized, SynchronizedArray, SynchronizedString):
    _objects.reducers[_kind] = _reduce_synchronized
