"""Libraries that cut their memory into arrays themselves, as torch does, with that memory in drover's slabs.

Stand-ins for torch's allocator, the CUDA runtime and the driver take the place of torch and of GPUs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from drover import _core
from programs import run

FOLDER = Path(_core.__file__).parents[2] / "tests/fake_driver"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make programs load stand-ins for NVIDIA's libraries, with two GPUs whose memory is host memory."""
    if not (FOLDER / "now/libc10_cuda.so").exists():
        pytest.skip("the stand-ins for torch's allocator and the driver are not built")
    monkeypatch.setenv("DROVER_LIBCUDA", str(FOLDER / "libcuda.so.1"))
    monkeypatch.setenv("DROVER_LIBNVML", str(FOLDER / "libnvidia-ml.so.1"))
    monkeypatch.setenv("FAKE_MEMORY", "1")
    monkeypatch.setenv("FAKE_GPU_COUNT", "2")
    monkeypatch.setenv("DROVER_LOG", "error")  # hides the warning that it cannot register host memory
    monkeypatch.setenv("ALLOCATOR", str(FOLDER / "now/libc10_cuda.so"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


LIBRARY = """
    import ctypes, gc, os, signal, threading, time
    import drover
    from divided import Array, cache, collect, look, reused, runtime, use_slabs, values
    from drover import _core
"""

RECEIVER = """
    use_slabs()
    inbox, outbox = drover.Queue(), drover.Queue()
    child = drover.Process(target=look, args=(inbox, outbox), daemon=True)
    child.start()

    def sent(array):
        # Sends an array and forgets it; returns its address.
        tensor, way = array.tensor()
        assert way == "own", way
        inbox.put(tensor)
        return array.address
"""


@pytest.mark.parametrize("binding", ["now", "lazy"])
def test_segments_come_from_slabs(monkeypatch: pytest.MonkeyPatch, binding: str) -> None:
    """Those of before stay where they are; empty ones are given back after the device was synchronized."""
    monkeypatch.setenv("ALLOCATOR", str(FOLDER / binding / "libc10_cuda.so"))
    text = run(
        LIBRARY
        + """
    early = Array(3 << 20, 1)
    before = runtime.fake_cudart_allocations()
    use_slabs()
    use_slabs()
    arrays = [Array(1000, value) for value in range(10)] + [Array(5 << 20, 10)]
    print(before, runtime.fake_cudart_allocations(), early.is_in_slab(), {array.tensor()[1] for array in arrays})
    print(_core.slabs_usage()["blocks"], _core.slabs_usage()["bytes"] == cache.cache_reserved() - (3 << 20))
    print([ctypes.string_at(array.address, 1)[0] for array in arrays] == list(range(11)))
    del arrays, early
    collect()
    cache.cache_empty()
    print(_core.slabs_usage()["blocks"], cache.cache_reserved(), runtime.fake_cudart_allocations())
    print(runtime.fake_cudart_synchronizations())
    """
    )
    assert text == ["1 1 False {'own'}", "2 True", "True", "0 0 0", "2"]


def test_arrays_that_others_hold_are_not_reused() -> None:
    """Each is held for itself, in a segment whose other arrays come and go."""
    text = run(
        LIBRARY
        + RECEIVER
        + """
    neighbour = Array(4000, 1)
    address = sent(Array(4000, 5))
    first = outbox.get()
    gc.collect()
    collect()
    others = [Array(4000, 6) for _ in range(100)]
    inbox.put("look")
    print(first, outbox.get(), address in [other.address for other in others], len(others))
    del others
    inbox.put("release")
    print(outbox.get(), reused(address))
    waiting = sent(neighbour)  # a message holds it as well
    del neighbour
    print(reused(waiting, tries=5))
    print(outbox.get())
    inbox.put("release")
    print(outbox.get(), reused(waiting))
    inbox.put(None)
    child.join()
    """
    )
    assert text == ["[5] [5] False 100", "released True", "False", "[1]", "released True"]


def test_the_death_of_a_receiver_frees_what_it_held() -> None:
    """And nothing else."""
    text = run(
        LIBRARY
        + RECEIVER
        + """
    other = drover.Queue()
    kept = Array(4000, 3)
    other.put(kept.tensor()[0])
    kept = kept.address
    address = sent(Array(4000, 5))
    print(outbox.get(), reused(address, tries=3))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    print(reused(address), reused(kept, tries=3), values(other.get()))
    print(reused(kept))
    """
    )
    assert text == ["[5] False", "True False {3}", "True"]


def test_arrays_survive_their_maker() -> None:
    """All of them, of one segment, with their values."""
    text = run(
        LIBRARY
        + """
    def make(outbox):
        use_slabs()
        arrays = [Array(3000, value) for value in range(60)]
        outbox.put([array.tensor()[0] for array in arrays])
        outbox.put(Array(3 << 20, 77).tensor()[0])
        os.kill(os.getpid(), signal.SIGKILL)

    outbox = drover.Queue()
    child = drover.Process(target=make, args=(outbox,))
    child.start()
    child.join()
    print(child.exitcode, [values(tensor) for tensor in outbox.get()] == [{value} for value in range(60)])
    print(values(outbox.get()))
    """
    )
    assert text == ["-9 True", "{77}"]


def test_an_array_that_is_passed_on_stays_held() -> None:
    """The part travels with the lease: the second receiver counts, even if the first is dead."""
    text = run(
        LIBRARY
        + """
    def pass_on(inbox, outbox):
        outbox.put(inbox.get())
        os.kill(os.getpid(), signal.SIGKILL)

    use_slabs()
    inbox, outbox = drover.Queue(), drover.Queue()
    child = drover.Process(target=pass_on, args=(inbox, outbox))
    child.start()
    array = Array(4000, 8)
    address = array.address
    inbox.put(array.tensor()[0])
    del array
    child.join()
    print(reused(address, tries=5), values(outbox.get()), reused(address))

    array = Array(4000, 4)  # to ourselves, which makes another part of what was received
    address = array.address
    inbox.put(array.tensor()[0])
    del array
    back = inbox.get()
    inbox.put(back)
    del back
    print(reused(address, tries=5), values(inbox.get()), reused(address))
    """
    )
    assert text == ["False {8} True", "False {4} True"]


def test_two_threads_and_two_devices() -> None:
    """Each device has its own slabs; a thread that sends does not wait for locks of one that allocates."""
    text = run(
        LIBRARY
        + """
    def check(inbox, outbox):
        total = 0
        for value, tensor in iter(inbox.get, None):
            assert values(tensor) == {value}, (value, values(tensor))
            total += 1
        outbox.put(total)

    use_slabs()
    inbox, outbox = drover.Queue(maxsize=8), drover.Queue()
    child = drover.Process(target=check, args=(inbox, outbox), daemon=True)
    child.start()
    places = set()

    def send(device):
        for value in range(150):
            array = Array(1000 + 100 * (value % 7), value, device)
            tensor, way = array.tensor()
            assert way == "own", way
            places.add(tensor.__dlpack_device__())
            inbox.put((value, tensor))

    threads = [threading.Thread(target=send, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    inbox.put(None)
    print(outbox.get(), len(places), runtime.fake_cudart_allocations())
    child.join()
    del threads
    for _ in range(200):
        collect()
        cache.cache_empty()
        if cache.cache_reserved() == 0:
            break
        time.sleep(0.01)
    print(cache.cache_reserved(), [_core.slabs_usage(device)["blocks"] for device in (0, 1)])
    """
    )
    assert text == ["300 2 0", "0 [0, 0]"]


def test_memory_that_runs_out_is_reported_as_cuda_does() -> None:
    """The library gets CUDA's error, and memory again once it has freed some; 16 GiB are on each GPU."""
    text = run(
        LIBRARY
        + """
    gib = 1 << 30
    use_slabs()
    first = Array(1000, 1)
    kept = cache.cache_allocate(9 * gib, 0)
    print(kept != 0, cache.cache_allocate(9 * gib, 0), cache.cache_allocate(9 * gib, 1) != 0, first.tensor()[1])
    cache.cache_free(kept, 0)
    print(cache.cache_allocate(10 * gib, 0) != 0, cache.cache_reserved() // gib, runtime.fake_cudart_allocations())
    """
    )
    assert text == ["True 0 True own", "True 19 0"]


def test_memory_comes_from_cuda_where_slabs_cannot_give_it() -> None:
    """A program goes on without its session; its arrays are then sent by a copy."""
    text = run(
        LIBRARY
        + """
    use_slabs()
    first = Array(1000, 1)
    pid = os.fork()
    if pid == 0:  # devices do not work here, and slabs do not either
        second = Array(3 << 20, 2)
        print(second.is_in_slab(), runtime.fake_cudart_allocations(), flush=True)
        os._exit(0)
    print(os.waitpid(pid, 0)[1], first.is_in_slab())
    """
    )
    assert text == ["False 1", "0 True"]


def test_a_library_without_such_calls_is_refused() -> None:
    """With a remedy; one that is not loaded too."""
    text = run("""
        import drover
        from drover import _core

        for name in ("/libnothing.so", "/libc.so.6"):
            try:
                _core.route_cuda_malloc(name)
            except drover.Unsupported as error:
                print("import table" in str(error), "PyPI" in str(error))
        """)
    assert text == ["True True", "True True"]


FAKE_TORCH = """
    import os
    import torch
    from drover import _torch_slabs

    changed = []
    torch.cuda.get_allocator_backend = lambda: os.environ["BACKEND"]
    torch._C._accelerator_getAllocatorSettings = lambda: os.environ["SETTINGS"]
    torch._C._accelerator_setAllocatorSettings = changed.append
"""


def require_torch_without_cuda() -> None:
    """Skip the test where torch has a library of that name itself; there `test_use_slabs.py` tests the same."""
    if pytest.importorskip("torch").version.cuda is not None:
        pytest.skip("this build of torch has its own libc10_cuda.so, whose place the stand-in would take")


def test_torch_gets_its_segments_from_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in has the name of torch's library; only expandable segments are turned off."""
    require_torch_without_cuda()
    monkeypatch.setenv("BACKEND", "native")
    monkeypatch.setenv("SETTINGS", "max_split_size_mb:512, expandable_segments: True")
    text = run(
        LIBRARY
        + FAKE_TORCH
        + """
    print(_torch_slabs.are_used())
    _torch_slabs.use(None)
    _torch_slabs.use(None)
    print(_torch_slabs.are_used(), changed, Array(1000, 1).tensor()[1])
    """
    )
    assert text == ["False", "True ['max_split_size_mb:512, expandable_segments: False'] own"]


def test_torch_with_another_allocator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a remedy, and nothing is changed."""
    require_torch_without_cuda()
    monkeypatch.setenv("BACKEND", "cudaMallocAsync")
    text = run(
        LIBRARY
        + FAKE_TORCH
        + """
    try:
        _torch_slabs.use(None)
    except drover.Unsupported as error:
        print("cudaMallocAsync" in str(error), "remove `backend`" in str(error), _torch_slabs.are_used(), changed)
    """
    )
    assert text == ["True True False []"]
