"""What programs take from `multiprocessing.sharedctypes`, in drover's shared memory and with drover's locks."""

from __future__ import annotations

from drover._sharedctypes import Array, RawArray, RawValue, Value, copy, synchronized

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]
