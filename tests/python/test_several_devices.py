"""Arrays on several GPUs in one message, with a stand-in for the driver whose device memory is host memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from drover import _core
from programs import run

LIBRARIES = Path(_core.__file__).parents[2] / "tests/fake_driver"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make programs load the stand-in, with three GPUs."""
    if not (LIBRARIES / "libcuda.so.1").exists():
        pytest.skip("the stand-in driver is not built")
    monkeypatch.setenv("DROVER_LIBCUDA", str(LIBRARIES / "libcuda.so.1"))
    monkeypatch.setenv("DROVER_LIBNVML", str(LIBRARIES / "libnvidia-ml.so.1"))
    monkeypatch.setenv("FAKE_MEMORY", "1")
    monkeypatch.setenv("FAKE_GPU_COUNT", "3")
    monkeypatch.setenv("DROVER_LOG", "error")  # hides the warning that it cannot register host memory


LIBRARY = """
    import ctypes, os, signal
    import drover
    from drover import _device_arrays

    driver = ctypes.CDLL(os.environ["DROVER_LIBCUDA"])

    def call(name, *arguments):
        entry, status = ctypes.c_void_p(), ctypes.c_int()
        result = (ctypes.byref(entry), 12000, ctypes.c_uint64(0), ctypes.byref(status))
        driver.cuGetProcAddress_v2(name.encode(), *result)
        result = ctypes.CFUNCTYPE(ctypes.c_int)(entry.value)(*arguments)
        assert result == 0, (name, result)

    class Plain:
        # An array as another library allocates it.
        def __init__(self, device, size, value):
            context, address = ctypes.c_void_p(), ctypes.c_uint64()
            call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            call("cuCtxSetCurrent", context)
            call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(size))
            self.device, self.address, self.size = device, address.value, size
            self.fill(value)

        def fill(self, value):
            ctypes.memset(self.address, value, self.size)

        def __dlpack_device__(self):
            return 2, self.device

        def __dlpack__(self, stream=None):
            interface = {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}
            return _device_arrays.capsule_of(interface, self, (2, self.device))

    class Received:
        def __init__(self, tensor):
            self.place, self.values = tensor.place, set(bytes(tensor.to("cpu")))

        def __repr__(self):
            return f"{self.place}:{self.values}"

    drover.register_array(Plain, Received)
"""


def test_arrays_on_several_devices_travel_in_one_message() -> None:
    """Each stays on its device, and survives its maker."""
    text = run(
        LIBRARY
        + """
    def make(line):
        arrays = [Plain(number % 3, 1000 + number, number) for number in range(60)]
        line.put({"arrays": arrays, "large": Plain(2, 40 << 20, 99)})
        for array in arrays:
            array.fill(255)
        os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        line = drover.Queue()
        maker = drover.Process(target=make, args=(line,))
        maker.start()
        maker.join()
        got = line.get()
        right = [(f"cuda:{number % 3}", {number}) for number in range(60)]
        print([(one.place, one.values) for one in got["arrays"]] == right, got["large"])
    """
    )
    assert text == ["True cuda:2:{99}"]


def test_arrays_keep_their_device_where_processes_number_devices_differently() -> None:
    """A process with CUDA_VISIBLE_DEVICES in another order finds each array on the same GPU."""
    text = run(
        LIBRARY
        + """
    def look(line, answers):
        answers.put([repr(one) for one in line.get()])

    if __name__ == "__main__":
        line, answers = drover.Queue(), drover.Queue()
        os.environ["CUDA_VISIBLE_DEVICES"] = "2,0,1"
        child = drover.Process(target=look, args=(line, answers))
        child.start()
        del os.environ["CUDA_VISIBLE_DEVICES"]
        line.put([Plain(device, 1000, device) for device in range(3)])
        print(answers.get(timeout=30))
        child.join()
    """
    )
    assert text == ["['cuda:1:{0}', 'cuda:2:{1}', 'cuda:0:{2}']"]
