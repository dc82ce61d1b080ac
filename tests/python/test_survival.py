"""Arrays in messages survive their maker, however it ends, and are values of the moment when they were sent."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from programs import run

# For each library: how to make an array of COUNT elements, its last element as a number, and how to overwrite it.
LIBRARIES = {
    "numpy": ("import numpy as np", "np.full(COUNT, value, 'f4')", "array[-1]", "array.fill(-1)"),
    "torch": ("import torch", "torch.full((COUNT,), float(value))", "array[-1]", "array.fill_(-1)"),
    "torch_cuda": (
        "import torch",
        "torch.full((COUNT,), float(value), device='cuda')",
        "array[-1]",
        "array.fill_(-1)",
    ),
    "torch_expandable": (
        "import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'; import torch",
        "torch.full((COUNT,), float(value), device='cuda')",
        "array[-1]",
        "array.fill_(-1)",
    ),
    "cupy": ("import cupy", "cupy.full(COUNT, value, 'f4')", "array[-1]", "array.fill(-1)"),
    "numba": (
        "import numpy as np; from numba import cuda",
        "cuda.to_device(np.full(COUNT, value, 'f4'))",
        "array[-1:].copy_to_host()[0]",
        "array.copy_to_device(np.full(COUNT, -1, 'f4'))",
    ),
    "jax": ("import jax.numpy as jnp", "jnp.full(COUNT, value, 'f4')", "array[-1]", "None"),
    "tensorflow": ("import tensorflow as tf", "tf.fill([COUNT], float(value))", "array[-1]", "None"),
}


def finds_gpu(name: str) -> bool:
    """Return whether a library finds a GPU; libraries that are not installed raise."""
    if name.startswith("torch_"):
        return importlib.import_module("torch").cuda.is_available()
    if name == "cupy":
        return importlib.import_module("cupy").cuda.runtime.getDeviceCount() > 0
    return importlib.import_module("numba.cuda").is_available()


def require(name: str) -> None:
    """Skip the test without the library, or without a GPU if it needs one."""
    module = {"torch_cuda": "torch", "torch_expandable": "torch"}.get(name, name)
    pytest.importorskip(module)
    if name in ("torch_cuda", "torch_expandable", "cupy", "numba"):
        try:
            found = finds_gpu(name)
        except Exception as error:  # each library raises its own type
            pytest.skip(f"{name} cannot use a GPU: {error}")
        if not found:
            pytest.skip(f"{name} finds no GPU")


PROGRAM = """
    import collections, dataclasses, gc, os, signal, sys, time
    import drover
    {imports}

    COUNT = 4_000_000  # 16 MB
    Pair = collections.namedtuple("Pair", "one other")

    @dataclasses.dataclass
    class Record:
        array: object
        number: int

    def make(value):
        return {make}

    def last(array):
        return float({last})

    def spoil(array):
        {spoil}

    def message(value, is_nested):
        one = make(value)
        if not is_nested:
            return one, [one]
        others = [make(value + number) for number in range(1, 4)]
        whole = {{"one": one, "pair": Pair(others[0], "text"), "list": [Record(others[1], 7), {{"x": others[2]}}]}}
        return whole, [one, *others]

    def check(got, value, is_nested):
        if is_nested:
            found = got["one"], got["pair"].one, got["list"][0].array, got["list"][1]["x"]
        else:
            found = (got,)
        expected = [float(value + number) for number in range(len(found))]
        assert [last(array) for array in found] == expected, ([last(array) for array in found], expected)
        assert all(type(array) is type(make(0)) for array in found)

    def put(line, value, end):
        for is_nested in (False, True):
            sent, arrays = message(value, is_nested)
            (line.send if hasattr(line, "send") else line.put)(sent)
            for array in arrays:
                spoil(array)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    def returned(value, is_nested):
        return message(value, is_nested)[0]

    def used():
        if {uses_cuda}:
            import ctypes
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            assert ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
            return total.value - free.value
        return 0

    def by_queue(end, value, delay):
        line = drover.Queue()
        maker = drover.Process(target=put, args=(line, value, end))
        maker.start()
        maker.join()
        assert maker.exitcode == (-9 if end == "kill" else 0), maker.exitcode
        time.sleep(delay)
        for is_nested in (False, True):
            check(line.get(timeout=20), value, is_nested)

    def by_pipe(end, value, delay):
        here, there = drover.Pipe()
        maker = drover.Process(target=put, args=(there, value, end))
        maker.start()
        there.close()
        maker.join()
        time.sleep(delay)
        for is_nested in (False, True):
            assert here.poll(20)
            check(here.recv(), value, is_nested)

    def by_pool(end, value, delay):
        with drover.Pool(1) as pool:
            results = [pool.apply_async(returned, (value, is_nested)) for is_nested in (False, True)]
            for result in results:
                result.wait(60)
            if end == "kill":
                os.kill(pool.workers()[0]["pid"], signal.SIGKILL)
            else:
                pool.close()
                pool.join()
            time.sleep(delay)
            for is_nested, result in zip((False, True), results):
                check(result.get(20), value, is_nested)

    if __name__ == "__main__":
        check(message(5, False)[0], 5, False)
        value = 10
        for by in (by_queue, by_pipe, by_pool) * 2:
            for end in ("exit", "kill"):
                by(end, value, 2.0 if value == 20 else 0.0)
                value += 10
            if value == 70:
                gc.collect()
                before = used()
        gc.collect()
        deadline = time.monotonic() + 20
        while used() > before + (64 << 20) and time.monotonic() < deadline:
            drover.Queue().put(1)  # a use of the session's memory returns what others have dropped
            time.sleep(0.2)
        print(value, max(0, used() - before) >> 26)
"""


@pytest.mark.parametrize("name", LIBRARIES)
def test_arrays_survive_their_maker(name: str) -> None:
    """That exits or is killed at once, or long before they are read; alone, and in structures."""
    require(name)
    imports, make, last, spoil = LIBRARIES[name]
    uses_cuda = name not in ("numpy", "torch", "tensorflow", "jax")
    lines = run(PROGRAM.format(imports=imports, make=make, last=last, spoil=spoil, uses_cuda=uses_cuda))
    assert lines[-1] == "130 0"
    warnings = [line for line in lines if line.startswith("drover[") and "is replaced" not in line]
    assert warnings == []


def test_small_arrays_of_a_killed_maker_arrive() -> None:
    """They are in the message itself."""
    pytest.importorskip("numpy")
    lines: list[Any] = run("""
        import os, signal
        import drover, numpy

        def put(line):
            line.put([numpy.arange(3), {"x": numpy.arange(5)}])
            os.kill(os.getpid(), signal.SIGKILL)

        line = drover.Queue()
        maker = drover.Process(target=put, args=(line,))
        maker.start()
        maker.join()
        print(line.get())
    """)
    assert lines == ["[array([0, 1, 2]), {'x': array([0, 1, 2, 3, 4])}]"]


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_tensors_of_torch_that_are_shared_survive_the_process_that_passed_them_on(strategy: str) -> None:
    """Arguments of a process, and what `share_memory_` has moved, stay shared, whoever sent them and has ended."""
    pytest.importorskip("torch")
    lines: list[Any] = run(f"""
        import os, signal
        import drover, torch
        torch.multiprocessing.set_sharing_strategy("{strategy}")

        def pass_on(line, plain, shared):
            torch.multiprocessing.set_sharing_strategy("{strategy}")
            line.put(plain)
            line.put({{"views": [shared[2:4], shared[3:]], "own": torch.ones(9).share_memory_()}})
            os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            line = drover.Queue()
            plain, shared = torch.zeros(100_000), torch.zeros(5).share_memory_()
            child = drover.Process(target=pass_on, args=(line, plain, shared))
            child.start()
            child.join()
            got, rest = line.get(), line.get()
            got += 1
            rest["views"][0] += 2
            print(got.is_shared(), plain.sum().item(), shared.tolist())
            print(rest["views"][1].tolist(), rest["own"].sum().item())
    """)
    assert lines == ["True 100000.0 [0.0, 0.0, 2.0, 2.0, 0.0]", "[2.0, 0.0] 9.0"]
