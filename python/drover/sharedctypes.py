"""What programs take from `multiprocessing.sharedctypes`: values and arrays in shared memory, with drover's locks."""

from __future__ import annotations

from multiprocessing import sharedctypes
from multiprocessing.sharedctypes import RawArray, RawValue, copy
from typing import Any

from drover._context import default

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]


def Value(typecode_or_type: Any, *args: Any, lock: Any = True, ctx: Any = None) -> Any:  # noqa: N802 (multiprocessing's)
    """Make a value of ctypes, with a lock unless that is False."""
    return sharedctypes.Value(typecode_or_type, *args, lock=lock, ctx=ctx or default)


def Array(typecode_or_type: Any, size_or_initializer: Any, *, lock: Any = True, ctx: Any = None) -> Any:  # noqa: N802
    """Make an array of ctypes, with a lock unless that is False."""
    return sharedctypes.Array(typecode_or_type, size_or_initializer, lock=lock, ctx=ctx or default)


def synchronized(obj: Any, lock: Any = None, ctx: Any = None) -> Any:
    """Wrap an object of ctypes so that a lock goes with it."""
    return sharedctypes.synchronized(obj, lock, ctx or default)
