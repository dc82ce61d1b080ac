"""How arrays of CuPy travel: by handle, on their device.

`import drover.cupy` imports CuPy. Nobody needs to: drover looks whether CuPy is there when something is sent.
"""

from __future__ import annotations

from typing import Any

import cupy

from drover import _core, _objects, _session

__all__: list[str] = []


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Say how arrays travel."""
    del library
    return {cupy.ndarray: _reduce}


def _reduce(array: cupy.ndarray) -> Any:
    if array.size == 0:
        return _empty, (array.shape, array.dtype.str)
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = cupy.ascontiguousarray(array)  # forms that others have no word for
    with array.device:
        stream = cupy.cuda.get_current_stream().ptr
        capsule = array.view(_bytes_like(array.dtype)).__dlpack__(stream=-1)
        made, _ = _core.import_array(_session.current(), capsule, stream)
    return _rebuild, (_objects.carry(made), array.dtype.str)


def _bytes_like(dtype: Any) -> str:
    """Give a type of the same size that every version of DLPack knows."""
    return "u1" if dtype.kind == "b" else dtype.str


def _rebuild(number: int, dtype: str) -> cupy.ndarray:
    """Open it; what the current stream does with it from now on comes after the sender's work."""
    return cupy.from_dlpack(_objects.carried(number)).view(dtype)


def _empty(shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
    return cupy.empty(shape, dtype)
