"""Other libraries that allocate from drover's slabs: the functions, on emulated devices, and torch and CuPy."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from drover import _core, _session
from programs import run

KIB = 1024


def finds_cuda(name: str) -> bool:
    """Return whether a library is installed and finds a GPU."""
    try:
        if name == "torch":
            import torch  # noqa: PLC0415

            return torch.cuda.is_available()
        import cupy  # noqa: PLC0415

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # each library raises its own type
        return False


with_torch = pytest.mark.skipif(not finds_cuda("torch"), reason="there is no GPU that torch can use")
with_cupy = pytest.mark.skipif(not finds_cuda("cupy"), reason="there is no GPU that CuPy can use")


@pytest.fixture(scope="module")
def functions() -> Any:
    """Return the functions as torch finds them, on emulated devices; a process can choose only once."""
    _core.use_slabs(_session.current(), "host", 256 * KIB)
    library = ctypes.CDLL(_core.__file__)
    library.drover_slabs_alloc.restype = ctypes.c_void_p
    library.drover_slabs_alloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    library.drover_slabs_free.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    library.drover_slabs_record_stream.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return library


class Memory:
    """A block as a library allocates it; the memory of emulated devices is host memory."""

    def __init__(self, functions: Any, size: int) -> None:
        """Allocate the block."""
        self._functions, self._size = functions, size
        self.address: int = functions.drover_slabs_alloc(size, 0, None)

    def free(self) -> None:
        """Free the block."""
        self._functions.drover_slabs_free(self.address, self._size, 0, None)

    def fill(self, value: int) -> None:
        """Write all bytes."""
        ctypes.memset(self.address, value, self._size)

    def last(self) -> int:
        """Read the last byte."""
        return ctypes.string_at(self.address + self._size - 1, 1)[0]


def test_allocated_blocks_do_not_overlap(functions: Any) -> None:
    """Each keeps its contents until it is freed."""
    blocks = [Memory(functions, size) for size in (1, 512, 5000, 3 << 20)]
    for number, memory in enumerate(blocks):
        memory.fill(number)
    assert [memory.last() for memory in blocks] == [0, 1, 2, 3]
    assert _core.slabs_usage()["blocks"] == len(blocks)
    functions.drover_slabs_record_stream(blocks[0].address, None)
    for memory in blocks[:-1]:
        memory.free()
    assert _core.slabs_usage()["blocks"] == 1
    functions.drover_slabs_free(None, 0, 0, None)
    assert functions.drover_slabs_alloc(0, 0, None) is None


def test_freed_memory_is_reused_and_counted(functions: Any) -> None:
    """A loop that allocates the same size needs no new memory."""
    _core.empty_slabs_cache()
    before = _core.slabs_usage()
    for _ in range(50):
        Memory(functions, 9000).free()
    after = _core.slabs_usage(0)
    assert after["misses"] - before["misses"] == 1
    assert after["hits"] - before["hits"] == 49
    assert (after["blocks"], after["cached_blocks"]) == (before["blocks"], 1)
    assert after["cached_bytes"] >= 9000
    assert _core.slabs_usage(1)["cached_bytes"] == 0


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make programs load a stand-in for NVIDIA's driver, whose device memory is host memory."""
    folder = Path(_core.__file__).parents[2] / "tests/fake_driver"
    if not (folder / "libcuda.so.1").exists():
        pytest.skip("the stand-in driver is not built")
    monkeypatch.setenv("DROVER_LIBCUDA", str(folder / "libcuda.so.1"))
    monkeypatch.setenv("DROVER_LIBNVML", str(folder / "libnvidia-ml.so.1"))
    monkeypatch.setenv("FAKE_MEMORY", "1")
    monkeypatch.setenv("DROVER_LOG", "error")  # hides the warning that it cannot register host memory


LIBRARY = """
    import ctypes, os, signal
    import drover
    from drover import _core, _device_arrays, _session

    _core.use_slabs(_session.current(), "cuda", None)

    class Array:
        def __init__(self, size, value):
            self.address, self.size = _core.slabs_allocate(size, 0, 0), size
            self.fill(value)

        def fill(self, value):
            ctypes.memset(self.address, value, self.size)

        def free(self):
            _core.slabs_free(self.address)

        def tensor(self):
            interface = {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}
            return _core.import_array(_session.current(), _device_arrays.capsule_of(interface, self, (2, 0)), None)
"""


@pytest.mark.usefixtures("stand_in")
def test_memory_held_by_another_process_is_not_reused() -> None:
    """Freeing it here and allocating more does not change it there."""
    text = run(
        LIBRARY
        + """
    def look(inbox, outbox):
        tensor = inbox.get()
        while inbox.get() == "look":
            outbox.put(bytes(tensor.to("cpu"))[-1])

    inbox, outbox = drover.Queue(), drover.Queue()
    child = drover.Process(target=look, args=(inbox, outbox), daemon=True)
    child.start()

    def seen():
        inbox.put("look")
        return outbox.get()

    array = Array(40_000, 1)
    tensor, way = array.tensor()
    inbox.put(tensor)
    del tensor
    first = seen()
    array.fill(2)
    second = seen()
    array.free()
    others = [Array(40_000, 3) for _ in range(4)]
    print(way, first, second, seen(), array.address in [other.address for other in others])
    inbox.put("end")
    child.join()
    """
    )
    assert text == ["own 1 2 2 False"]


@pytest.mark.usefixtures("stand_in")
def test_sent_memory_survives_the_death_of_the_sender() -> None:
    """The receiver holds its own lease."""
    text = run(
        LIBRARY
        + """
    def make(outbox):
        _core.use_slabs(_session.current(), "cuda", None)
        outbox.put(Array(5000, 9).tensor()[0])
        os.kill(os.getpid(), signal.SIGKILL)

    outbox = drover.Queue()
    child = drover.Process(target=make, args=(outbox,))
    child.start()
    child.join()
    print(child.exitcode, set(bytes(outbox.get().to("cpu"))))
    """
    )
    assert text == ["-9 {9}"]


@pytest.mark.usefixtures("stand_in")
def test_received_memory_is_passed_on_without_another_import() -> None:
    """A tensor that another library holds is recognised by its address."""
    text = run(
        LIBRARY
        + """
    made = _core.empty(_session.current(), "uint8", [3000], "cuda:0", True)
    again, way = _core.import_array(_session.current(), made.__dlpack__(stream=-1), None)
    capsule = again.__dlpack__(stream=-1)
    managed = _device_arrays._DLManagedTensor.from_address(_device_arrays._pointer_of(capsule, b"dltensor"))
    ctypes.memset(managed.array.data + 2999, 7, 1)
    print(way, bytes(made.to("cpu"))[-2:])
    """
    )
    assert text == ["own b'\\x00\\x07'"]


def test_functions_raise_before_use_slabs() -> None:
    """With a remedy that names it."""
    text = run("""
        from drover import _core
        try:
            _core.slabs_allocate(1, 0, 0)
        except ValueError as error:
            print(error)
        """)
    assert "drover.torch.use_slabs()" in "".join(text)


def test_memory_stays_valid_until_the_process_exits() -> None:
    """A program that frees it in an exit handler, or never, exits normally."""
    text = run("""
        import atexit
        from drover import _core, _session

        _core.use_slabs(_session.current(), "host", None)
        kept = [_core.slabs_allocate(1000 * size, 0, 0) for size in range(1, 20)]
        for address in kept[::2]:
            _core.slabs_free(address)
        atexit.register(_core.slabs_free, kept[1])
        print(_core.slabs_usage()["blocks"])
        """)
    assert text == ["9"]


@pytest.mark.skipif(finds_cuda("torch"), reason="torch has a GPU here")
def test_torch_without_a_gpu_raises() -> None:
    """With a remedy; the CPU stays usable."""
    pytest.importorskip("torch")
    import drover.torch  # noqa: PLC0415

    for call in (drover.torch.use_slabs, lambda: drover.torch.zeros(3, device="cuda")):
        with pytest.raises(drover.Unsupported, match=r"torch .* cannot use CUDA"):
            call()
    with pytest.raises(drover.InvalidArgument, match="cannot place a tensor on meta"):
        drover.torch.empty(3, device="meta")
    assert drover.torch.zeros(3, device="cpu").tolist() == [0, 0, 0]


TORCH = """
    import time
    import drover, drover.torch, torch

    def add(inbox, outbox):
        for tensor in iter(inbox.get, None):
            tensor += 1
            outbox.put(tensor.data_ptr() != 0)

    drover.torch.use_slabs()
    drover.torch.use_slabs()
    inbox, outbox = drover.Queue(), drover.Queue()
    child = drover.Process(target=add, args=(inbox, outbox))
    child.start()
"""


@with_torch
def test_tensors_of_torch_are_sent_without_a_copy() -> None:
    """Small and large ones, and parts of them: both processes share memory."""
    text = run(
        TORCH
        + """
    for size in (1, 1000, 1 << 20, 1 << 26):
        tensor = torch.arange(size, device="cuda", dtype=torch.float32) % 1000  # so that adding 1 is exact
        for sent in (tensor, tensor[size // 2 :]):
            before = sent.sum(dtype=torch.float64)
            inbox.put(sent)
            assert outbox.get()
            torch.cuda.synchronize()
            assert sent.sum(dtype=torch.float64).item() == before.item() + sent.numel(), size
    inbox.put(None)
    child.join()
    usage = drover.torch.memory_usage(0)
    print(usage["blocks"] > 0, usage["misses"] > 0, child.exitcode)
    """
    )
    assert text == ["True True 0"]


@with_torch
def test_torch_reuses_freed_memory_unless_it_is_held_elsewhere() -> None:
    """A loop needs no new memory; a tensor in a queue keeps its memory although it was deleted."""
    text = run(
        TORCH
        + """
    for _ in range(100):
        torch.ones(1000, 1000, device="cuda").sum().item()
    usage = drover.torch.memory_usage()
    assert usage["misses"] < 10, usage
    waiting = drover.Queue()
    waiting.put(torch.full((1000, 1000), 5.0, device="cuda"))
    others = [torch.full((1000, 1000), 6.0, device="cuda") for _ in range(20)]
    assert waiting.get().mean().item() == 5
    side = torch.cuda.Stream()
    for _ in range(20):
        tensor = torch.full((1000, 1000), 7.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            copy = tensor.clone()
        tensor.record_stream(side)
        del tensor
        torch.zeros(1000, 1000, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        assert copy.mean().item() == 7
        copy.record_stream(torch.cuda.current_stream())
    del others, copy
    torch.cuda.synchronize()
    inbox.put(None)
    child.join()
    for _ in range(100):  # the leases of the child end a moment after it
        drover.torch.empty_cache()
        if torch.cuda.memory_reserved() == 0:
            break
        time.sleep(0.05)
    print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), drover.torch.memory_usage()["blocks"])
    """
    )
    assert text == ["0 0 0"]


@with_torch
def test_a_loop_of_new_tensors_reuses_the_memory_of_those_that_were_received() -> None:
    """Also if it makes them faster than drover looks by itself whether they are still in use."""
    text = run(
        TORCH
        + """
    for _ in range(100):
        inbox.put(torch.ones(64 << 20, dtype=torch.uint8, device="cuda"))
        assert outbox.get()
    most = torch.cuda.max_memory_reserved() // (64 << 20)
    inbox.put(None)
    child.join()
    print(most if most > 8 else "a few")
    """
    )
    assert text == ["a few"]


@with_torch
def test_memory_that_a_receiver_holds_is_not_reused_by_torch() -> None:
    """Not even if the sender's tensor has got other memory; and again after the receiver has dropped it."""
    text = run(
        TORCH
        + """
    def hold(inbox, outbox):
        for tensor in iter(inbox.get, None):
            inbox.get()
            outbox.put(tensor.sum().item())
            del tensor
            outbox.put("dropped")

    inbox.put(None)
    child.join()
    child = drover.Process(target=hold, args=(inbox, outbox))
    child.start()
    for way in ("deleted", "replaced"):
        tensor = torch.full((1000,), 5.0, device="cuda")
        address = tensor.data_ptr()
        inbox.put(tensor)
        if way == "deleted":
            del tensor
        else:
            tensor.data = torch.full((1000,), 6.0, device="cuda")
        others = [torch.full((1000,), 7.0, device="cuda") for _ in range(1000)]
        inbox.put("look")
        print(way, outbox.get(), outbox.get(), address in [other.data_ptr() for other in others])
        del others
    inbox.put(None)
    child.join()
    """
    )
    assert text == ["deleted 5000.0 dropped False", "replaced 5000.0 dropped False"]


@with_torch
def test_torch_keeps_its_statistics_and_its_error() -> None:
    """They are exact, and a program goes on after the error, with memory that torch had cached."""
    text = run(
        TORCH
        + """
    inbox.put(None)
    child.join()
    total = torch.cuda.mem_get_info()[1]
    small = torch.ones(1000, device="cuda")
    before = torch.cuda.memory_allocated()
    large = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    print(torch.cuda.memory_allocated() - before >= total // 2, "CUDA" in torch.cuda.memory_summary())
    try:
        torch.empty(total, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print("Tried to allocate" in str(error), torch.cuda.memory_stats()["num_ooms"])
    del large
    larger = torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
    print(larger.numel() > total // 2, small.sum().item(), torch.cuda.max_memory_allocated() >= larger.numel())
    """
    )
    assert text == ["True True", "True 1", "True 1000.0 True"]


@with_torch
def test_a_graph_is_captured_and_replayed() -> None:
    """Its memory lies in slabs too, and is sent without a copy."""
    text = run(
        TORCH
        + """
    given = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = given * 2
    for value in (3.0, 4.0):
        given.fill_(value)
        graph.replay()
        junk = [torch.zeros(1000, device="cuda") for _ in range(100)]
        print(made.sum().item())
    inbox.put(made)
    outbox.get()
    inbox.put(None)
    child.join()
    print(made.sum().item())
    """
    )
    assert text == ["6000.0", "8000.0", "9000.0"]


@with_torch
def test_threads_allocate_on_all_devices() -> None:
    """And send what they made."""
    text = run(
        TORCH
        + """
    import threading

    def work(device):
        for value in range(200):
            inbox.put(torch.full((1000 + value,), float(value), device=f"cuda:{device}"))
            torch.randn(1000, 100, device=f"cuda:{device}").sum()

    count = torch.cuda.device_count()
    threads = [threading.Thread(target=work, args=(number % count,)) for number in range(2)]
    for thread in threads:
        thread.start()
    print(all(outbox.get() for _ in range(400)))
    for thread in threads:
        thread.join()
    inbox.put(None)
    child.join()
    """
    )
    assert text == ["True"]


@with_torch
def test_expandable_segments_are_turned_off_and_other_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory from before stays in use, and is sent by a copy."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(name, "expandable_segments:True,max_split_size_mb:512")
    text = run("""
        import drover.torch, torch
        from drover import _core, _session

        def is_in_slab(tensor):
            return _core.find_on_device(_session.current(), tensor.data_ptr(), tensor.nbytes, 0) is not None

        before = torch.ones(1 << 20, device="cuda")
        drover.torch.use_slabs()
        after = torch.ones(1 << 24, device="cuda")
        settings = torch.cuda.memory._snapshot()["allocator_settings"]
        print(is_in_slab(before), is_in_slab(after), settings["max_split_size"] >> 20, before.sum().item())
        """)
    assert text == ["False True 512 1048576.0"]


@with_torch
def test_another_allocator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a remedy."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(name, "backend:cudaMallocAsync")
    text = run("""
        import drover, drover.torch, torch
        try:
            drover.torch.use_slabs()
        except drover.Unsupported as error:
            print(error)
        """)
    assert "remove `backend`" in "".join(text)


@with_torch
def test_gpu_tensors_of_drover_are_shared_and_passed_on() -> None:
    """They lie in slabs even without use_slabs; the receiver can send them on."""
    text = run("""
        import drover, drover.torch, torch

        def pass_on(inbox, outbox):
            for tensor in iter(inbox.get, None):
                outbox.put(tensor)

        inbox, outbox = drover.Queue(), drover.Queue()
        child = drover.Process(target=pass_on, args=(inbox, outbox))
        child.start()
        for made in (drover.torch.zeros(100, device="cuda"), drover.torch.tensor([1.0, 2.0], device="cuda:0")):
            inbox.put(made)
            back = outbox.get()
            made += 1
            print(made.device, torch.equal(back, made))
        inbox.put(None)
        child.join()
        """)
    assert text == ["cuda:0 True", "cuda:0 True"]


@with_cupy
def test_arrays_of_cupy_are_sent_without_a_copy() -> None:
    """Both processes share memory, and freed memory is reused."""
    text = run("""
        import cupy, drover, drover.cupy

        def add(inbox, outbox):
            import cupy
            while (array := inbox.get()) is not None:
                array += 1
                cupy.cuda.get_current_stream().synchronize()
                outbox.put("added")

        drover.cupy.use_slabs()
        inbox, outbox = drover.Queue(), drover.Queue()
        child = drover.Process(target=add, args=(inbox, outbox))
        child.start()
        for size in (1, 1000, 1 << 24):
            array = cupy.arange(size)
            inbox.put(array)
            outbox.get()
            assert int(array[-1]) == size, size
        stream = cupy.cuda.Stream()
        with stream:
            for _ in range(50):
                assert float(cupy.ones((1000, 100)).sum()) == 100_000
        usage = drover.cupy.memory_usage()
        inbox.put(None)
        child.join()
        pool = cupy.get_default_memory_pool()
        print(usage["misses"] < 20, 0 < pool.used_bytes() <= pool.total_bytes() == usage["bytes"], child.exitcode)
        """)
    assert text == ["True True 0"]


@with_cupy
def test_cupy_keeps_its_pool_and_its_error() -> None:
    """Memory that a message has is not reused, and free memory goes back."""
    text = run("""
        import time
        import cupy, drover, drover.cupy

        drover.cupy.use_slabs()
        queue, pool = drover.Queue(), cupy.get_default_memory_pool()
        array = cupy.full(100_000, 3.0)
        address = array.data.ptr
        queue.put(array)
        del array
        others = [cupy.zeros(100_000) for _ in range(10)]
        print(address in [other.data.ptr for other in others], float(queue.get().sum()))
        try:
            cupy.zeros(1 << 42, dtype="u1")
        except cupy.cuda.memory.OutOfMemoryError:
            print(pool.used_bytes() >= 8_000_000)
        del others
        for _ in range(100):  # what came from the queue is released a moment later
            drover.cupy.empty_cache()
            if pool.total_bytes() == 0:
                break
            time.sleep(0.05)
        print(pool.total_bytes(), drover.cupy.memory_usage()["blocks"])
        """)
    assert text == ["False 300000.0", "True", "0 0"]


@pytest.mark.skipif(finds_cuda("cupy"), reason="CuPy has a GPU here")
def test_cupy_without_a_gpu_raises() -> None:
    """With a remedy."""
    pytest.importorskip("cupy")
    import drover.cupy  # noqa: PLC0415

    with pytest.raises(drover.Unsupported, match=r"CuPy .* cannot use CUDA"):
        drover.cupy.use_slabs()
