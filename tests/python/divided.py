"""What the programs of `test_divided_slabs.py` share: a library that cuts its GPU memory into arrays itself.

The library, the CUDA runtime and the driver are stand-ins, and memory of devices is host memory.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

from drover import _core, _device_arrays, _session

__all__ = ["Array", "cache", "collect", "look", "reused", "runtime", "use_slabs", "values"]

cache = ctypes.CDLL(os.environ["ALLOCATOR"])
runtime = ctypes.CDLL(str(Path(os.environ["ALLOCATOR"]).parents[1] / "libcudart.so.1"))
cache.cache_allocate.restype = cache.cache_reserved.restype = ctypes.c_uint64
cache.cache_allocate.argtypes = cache.cache_free.argtypes = (ctypes.c_uint64, ctypes.c_int)


def use_slabs() -> None:
    """Let the library allocate in slabs from now on."""
    _core.use_slabs(_session.current(), "cuda", None, is_divided=True)
    _core.route_cuda_malloc("/libc10_cuda.so")


class Array:
    """An array of bytes, all of one value."""

    def __init__(self, size: int, value: int, device: int = 0) -> None:
        """Allocate it."""
        self.size, self.device = size, device
        self.address: int = cache.cache_allocate(size, device)
        assert self.address, "out of memory"
        ctypes.memset(self.address, value, size)

    def __del__(self) -> None:
        """Free it for the next array."""
        cache.cache_free(self.address, self.device)

    def tensor(self) -> tuple[Any, str]:
        """Import it as a drover tensor; return how, too."""
        interface = {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}
        capsule = _device_arrays.capsule_of(interface, self, (2, self.device))
        return _core.import_array(_session.current(), capsule, None)

    def is_in_slab(self) -> bool:
        """Whether drover knows its memory."""
        return _core.find_on_device(_session.current(), self.address, self.size, self.device) is not None


def values(tensor: Any) -> set[int]:
    """Return the different bytes of a tensor."""
    return set(bytes(tensor.to("cpu")))


def collect() -> None:
    """Release what others do not use any more."""
    _core.trim_memory(_session.current())


def reused(address: int, tries: int = 500) -> bool:
    """Return whether an address is given out again, now or soon."""
    for _ in range(tries):
        collect()
        others = [Array(4000, 9) for _ in range(20)]
        if address in [other.address for other in others]:
            return True
        del others
        time.sleep(0.01)
    return False


def look(inbox: Any, outbox: Any) -> None:
    """Read each received tensor now, and again for each request; drop it on any other message."""
    for tensor in iter(inbox.get, None):
        outbox.put(sorted(values(tensor)))
        while inbox.get() == "look":
            outbox.put(sorted(values(tensor)))
        del tensor
        outbox.put("released")
