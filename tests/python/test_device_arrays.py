"""Device arrays of CuPy, JAX and Numba: they stay on their device, and both ends share memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import drover
import pytest
from drover import _objects
from programs import run


def library(name: str, is_usable: Callable[[Any], bool]) -> Any:
    """Return a library that can use a GPU, or skip the test."""
    module = pytest.importorskip(name)
    try:
        usable = is_usable(module)
    except Exception as error:  # each library raises its own type
        pytest.skip(f"{name} cannot use a GPU: {error}")
    if not usable:
        pytest.skip(f"{name} finds no GPU")
    return module


def round_trip(thing: Any) -> Any:
    """Return the object as another process would receive it."""
    return _objects.loads(*_objects.dumps(thing))


FORMS = ["?", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8"]


class Foreign:
    """An array of a library unknown to drover, in host memory."""

    def __init__(self, array: Any) -> None:
        """Wrap a numpy array."""
        self.array = array

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """Export the array."""
        assert stream is None
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of the array."""
        return self.array.__dlpack_device__()

    def __reduce__(self) -> Any:
        """Refuse to be pickled."""
        raise AssertionError("the array was pickled")


def rebuild_foreign(exporter: Any) -> Foreign:
    """Create an array from an object with __dlpack__."""
    return Foreign(importlib.import_module("numpy").from_dlpack(exporter))


def test_arrays_of_a_registered_type_keep_their_type() -> None:
    """Nested, and with their strides."""
    np = pytest.importorskip("numpy")
    with pytest.raises(AssertionError, match="pickled"):
        round_trip(Foreign(np.zeros(5)))
    drover.register_array(Foreign, rebuild_foreign)
    try:
        array = np.arange(24, dtype="f4").reshape(4, 6)[:, ::2]
        back = round_trip({"in": [Foreign(array)]})["in"][0]
        assert type(back) is Foreign
        np.testing.assert_array_equal(back.array, array)
    finally:
        del _objects.reducers[Foreign]


@pytest.fixture
def cupy() -> Any:
    """Return CuPy."""
    return library("cupy", lambda module: module.cuda.runtime.getDeviceCount() > 0)


@pytest.mark.parametrize("dtype", FORMS)
def test_arrays_of_cupy_come_back(cupy: Any, dtype: str) -> None:
    """Of every dtype; whole, transposed, strided, reversed and empty."""
    array = (cupy.arange(60_000).reshape(200, 300) % 2).astype(dtype)
    for view in (array, array.T, array[::2, 3:], array[::-1], array[:0], array[5, 5]):
        back = round_trip({"in": view})["in"]
        assert type(back) is type(view)
        assert (back.dtype, back.shape) == (view.dtype, view.shape)
        assert bool((back == view).all())


@pytest.mark.parametrize("is_shared", [True, False])
def test_arrays_of_cupy_share_memory_only_on_purpose(cupy: Any, is_shared: bool) -> None:
    """Otherwise neither sees what the other writes."""
    array = cupy.zeros(100_000)
    if is_shared:
        array = importlib.import_module("drover.cupy").share(array)
    back = round_trip(array)
    back[7] = 3.0
    cupy.cuda.get_current_stream().synchronize()
    assert float(array[7]) == (3.0 if is_shared else 0.0)


def test_two_processes_share_an_array_of_cupy(cupy: Any) -> None:
    """Passed as an argument, and back through a queue."""
    assert cupy is not None
    lines = run("""
        import cupy
        import drover

        def work(array, results):
            array += 1
            results.put(array)

        array = cupy.zeros(100_000)
        results = drover.Queue()
        child = drover.Process(target=work, args=(array, results))
        child.start()
        print(float(results.get().sum()), float(array.sum()))
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["100000.0 100000.0", "0"]


def test_arrays_of_jax_come_back() -> None:
    """On the same device."""
    jax = library("jax", lambda module: any(device.platform == "gpu" for device in module.devices()))
    array = jax.numpy.arange(60_000.0).reshape(200, 300)
    back = round_trip([array, 1])[0]
    assert back.devices() == array.devices()
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert bool((back == array).all())


def test_arrays_of_numba_come_back() -> None:
    """On the same device, with equal elements."""
    library("numba", lambda _: importlib.import_module("numba.cuda").is_available())
    cuda = importlib.import_module("numba.cuda")
    np = pytest.importorskip("numpy")
    for host in (np.arange(60_000.0).reshape(200, 300), np.zeros(0), np.arange(10)):
        back = round_trip((cuda.to_device(host), 1))[0]
        assert back.is_c_contiguous()
        np.testing.assert_array_equal(back.copy_to_host(), host)
