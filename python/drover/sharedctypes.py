"""The module `multiprocessing.sharedctypes` under drover's name, with drover's shared memory and locks."""

from __future__ import annotations

from multiprocessing.sharedctypes import Synchronized, SynchronizedArray, SynchronizedBase, SynchronizedString

from drover._sharedctypes import Array, RawArray, RawValue, Value, copy, synchronized

__all__ = [
    "Array",
    "RawArray",
    "RawValue",
    "Synchronized",
    "SynchronizedArray",
    "SynchronizedBase",
    "SynchronizedString",
    "Value",
    "copy",
    "synchronized",
]
