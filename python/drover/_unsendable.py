"""Refuses objects that mean nothing in another process, and says what to send instead.

Most of them cannot be pickled anyway. cloudpickle would copy what an open text file contains, so that a process would
write into a string that nobody reads.
"""

from __future__ import annotations

import _thread
import io
import mmap
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["reducers"]

_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_REMEDIES: dict[type, str] = {
    types.GeneratorType: "send a list of what it yields, or call the generator function in the other process",
    types.CoroutineType: "send the coroutine function and its arguments",
    types.AsyncGeneratorType: "send the function and its arguments",
    _thread.LockType: "use drover.Lock(), or another lock of drover, which works between processes",
    type(threading.RLock()): "use drover.RLock(), or another lock of drover, which works between processes",
    threading.local: "create it in the other process, for example in the initializer of a pool",
    mmap.mmap: "send the path of the file, or use drover.Array() or a numpy array, which drover shares",
    weakref.ReferenceType: "send the object that it refers to",
}


def reducers() -> dict[type, Callable[[Any], Any]]:
    """Return a reducer for each of the types, which raises TypeError with a remedy."""
    remedies = dict(_REMEDIES)
    if (sqlite := sys.modules.get("sqlite3")) is not None and hasattr(sqlite, "Connection"):
        remedies[sqlite.Connection] = "send the path of the database, and connect in the other process"
    refusing: dict[type, Callable[[Any], Any]] = {kind: _refusal(remedy) for kind, remedy in remedies.items()}
    return {**refusing, **dict.fromkeys(_FILES, _reduce_file)}


def _refusal(remedy: str) -> Callable[[Any], Any]:
    def refuse(thing: Any) -> Any:
        kind = type(thing)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"cannot pickle '{name}' object\n  what to do: {remedy}")

    return refuse


def _reduce_file(file: Any) -> Any:
    """Let the standard streams stand for those of the receiver, as cloudpickle does; refuse other files."""
    for name in ("stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    kind = f"{type(file).__module__}.{type(file).__qualname__}"
    raise TypeError(
        f"cannot pickle '{kind}' object: the open file {getattr(file, 'name', '')!r}\n"
        "  what to do: send the path, and open the file in the other process"
    )
