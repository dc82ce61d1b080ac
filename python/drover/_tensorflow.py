"""How TensorFlow's eager tensors are sent: as tensors, which stay on their device."""

from __future__ import annotations

from typing import Any

from drover import _core, _objects

__all__ = ["reducers"]

_CPU = 1  # DLPack's number for host memory
_LEGACY_STREAM = 1  # DLPack's number for CUDA's legacy default stream


def reducers(library: str) -> dict[type, _objects.Reducer]:
    """Return the reducer for eager tensors."""
    del library
    import tensorflow  # noqa: PLC0415 (only needed by programs that have imported it)

    return {tensorflow.__internal__.EagerTensor: _reduce}


def _reduce(tensor: Any) -> Any:
    capsule = None if _is_inline(tensor) else _capsule_of(tensor)
    if capsule is None:
        return tensor.__reduce__()
    # TensorFlow does not expose its streams, so its devices are waited for.
    is_on_gpu = tensor.__dlpack_device__()[0] != _CPU
    stream = _LEGACY_STREAM if is_on_gpu else None
    return _rebuild, (_objects.arrays().add_capsule(capsule, stream, is_known=True),)


def _is_inline(tensor: Any) -> bool:
    size = tensor.dtype.size * int(tensor.shape.num_elements() or 0)
    return size == 0 or ("GPU" not in tensor.device and _objects.is_inline(size))


def _capsule_of(tensor: Any) -> Any:
    """Return the tensor as a DLPack capsule, or None if its type has none, such as a text."""
    import tensorflow  # noqa: PLC0415

    if "GPU" in tensor.device:
        tensorflow.test.experimental.sync_devices()
    try:
        return tensorflow.experimental.dlpack.to_dlpack(tensor)
    except tensorflow.errors.InvalidArgumentError:
        return None


def _rebuild(number: int) -> Any:
    import tensorflow  # noqa: PLC0415

    received: _core.Tensor = _objects.carried(number)
    received.synchronize()
    return tensorflow.experimental.dlpack.from_dlpack(received.__dlpack__())
