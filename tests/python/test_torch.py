"""Torch tensors: their attributes are kept, and shared memory stays shared."""

from __future__ import annotations

import pickle
import random
from typing import Any

import drover
import pytest
from drover import _core, _objects, _session
from programs import run

torch = pytest.importorskip("torch")
import drover.torch  # noqa: E402 (only where torch is)

TYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16]
TYPES += [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16]
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use")


def round_trip(thing: Any) -> Any:
    """Return the object as another process would receive it."""
    return _objects.loads(*_objects.dumps(thing))


def raw(tensor: Any) -> bytes:
    """Return the bytes of the elements."""
    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist())


def assert_same(back: Any, tensor: Any) -> None:
    """Compare everything that a program can see."""
    assert type(back) is type(tensor)
    assert (back.dtype, back.shape, back.device) == (tensor.dtype, tensor.shape, tensor.device)
    assert back.requires_grad == tensor.requires_grad
    assert raw(back) == raw(tensor)


def make(random_: random.Random, dtype: Any) -> Any:
    """Return a tensor of random size and layout."""
    shape = tuple(random_.choice([0, 1, 3, 17, 40]) for _ in range(random_.randrange(4)))
    made = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(random_.randrange(1 << 30))).to(dtype)
    if shape and random_.random() < 0.5:
        made = made[tuple(slice(random_.randrange(2), None, random_.choice([1, 2])) for _ in shape)]
    if made.ndim > 1 and random_.random() < 0.4:
        made = made.transpose(0, 1)
    if made.dtype.is_floating_point and made.dtype.itemsize > 1 and random_.random() < 0.3:
        made = made.detach().requires_grad_()
    return made


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_random_tensors_come_back(seed: int, dtype: Any) -> None:
    """Of every dtype, on their own and nested."""
    tensor = make(random.Random(seed), dtype)
    assert_same(round_trip(tensor), tensor)
    assert_same(round_trip({"in": [tensor, 1]})["in"][0], tensor)


def test_strides_are_kept() -> None:
    """Also of views."""
    tensor = torch.arange(60_000.0).reshape(200, 300)
    for view in (tensor, tensor.t(), tensor[10:190], tensor[:, 20:290], tensor.as_strided((199, 250), (301, 1), 5)):
        back = round_trip(view)
        assert back.stride() == view.stride()
        assert torch.equal(back, view)


def test_small_part_of_a_large_storage_is_sent_without_the_rest() -> None:
    """Only the elements of the tensor are copied."""
    tensor = torch.zeros(1_000_000)
    payload, tensors = _objects.dumps(tensor[7])
    assert len(payload) < 1000
    assert [part.nbytes for part in tensors] == [4]
    assert sum(part.nbytes for part in _objects.dumps(tensor[:100_000])[1]) == 400_000


def test_tensors_that_share_memory_share_it_at_the_receiver() -> None:
    """If they are in one message."""
    tensor = torch.zeros(50_000)
    one, other = round_trip((tensor, tensor[10_000:].view(200, 200)))
    one[10_000] = 5.0
    assert other[0, 0] == 5.0
    assert tensor[10_000] == 0.0


def test_modules_and_parameters_come_back() -> None:
    """With tied weights, attributes and buffers."""
    model = torch.nn.Sequential(torch.nn.Linear(80, 80), torch.nn.LSTM(80, 30), torch.nn.BatchNorm1d(5))
    model.tied = torch.nn.Linear(80, 80, bias=False)
    model.tied.weight = model[0].weight
    model[0].weight.note = "kept"
    back = round_trip(model)
    assert back.tied.weight is back[0].weight
    assert back[0].weight.note == "kept"
    assert type(back[0].weight) is torch.nn.Parameter
    for name, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], value)


class Own(torch.Tensor):
    """A subclass of Tensor unknown to drover."""


@pytest.mark.filterwarnings("ignore:TypedStorage", "ignore:torch.quantize_per_tensor", "ignore:Sparse")
def test_tensors_pickled_by_torch_come_back() -> None:
    """Their memory is not in the pickle, either."""
    dense = torch.eye(100)
    assert torch.equal(round_trip(dense.to_sparse()).to_dense(), dense)
    assert torch.equal(round_trip(dense.to_sparse_csr()).to_dense(), dense)
    conjugate = torch.full((3,), 1 + 2j).conj()
    assert torch.equal(round_trip(conjugate), conjugate)
    own = torch.ones(50_000).as_subclass(Own)
    payload, tensors = _objects.dumps(own)
    assert len(payload) < 2000
    assert type(_objects.loads(payload, tensors)) is Own
    assert round_trip(torch.empty(3, device="meta")).device.type == "meta"


def test_tensor_with_a_history_is_refused() -> None:
    """By put, with a remedy."""
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(drover.InvalidArgument, match="detach"):
        drover.Queue().put({"loss": weight * 2})
    assert_same(round_trip(weight), weight)


def test_received_copies_are_writable_and_independent() -> None:
    """Tensors outside of shared memory are copied."""
    for count in (10, 100_000):
        tensor = torch.zeros(count)
        back = round_trip(tensor)
        back[0] = 1
        assert tensor[0] == 0


@pytest.mark.parametrize("count", [1, 10, 1_000_000])
def test_tensor_in_shared_memory_is_shared(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, in parts and transposed, and when it is sent once more; nothing is copied."""
    tensor = drover.torch.zeros(count, 4)
    monkeypatch.setattr(_core, "copied", None)
    for number, view in enumerate((tensor, tensor[count // 2 :], tensor.t(), tensor[:, 1:3], tensor[-1:, 2:3]), 1):
        back = round_trip(view)
        back[-1, -1] = number
        assert view[-1, -1] == number
        again = round_trip(back)
        again[0, 0] = -number
        assert view[0, 0] == -number


def test_tensors_and_arrays_share_memory() -> None:
    """Converted by torch.from_numpy and Tensor.numpy, which copy nothing."""
    pytest.importorskip("numpy")
    array = drover.zeros(1000)
    round_trip(torch.from_numpy(array))[5] = 1.0
    assert array[5] == 1.0
    tensor = drover.torch.zeros(1000)
    round_trip(tensor.numpy())[5] = 1.0
    assert tensor[5] == 1.0


def test_created_tensors_equal_those_of_torch() -> None:
    """Dtype, size and contents, and errors."""
    for size in [(0,), (5,), ((),), (2, 3), ((2, 3),), (torch.Size((4, 0)),)]:
        for made, like in ((drover.torch.zeros, torch.zeros), (drover.torch.empty, torch.empty)):
            assert made(*size).shape == like(*size).shape
            assert made(*size).stride() == like(*size).stride()
            assert made(*size, dtype=torch.bfloat16).dtype is torch.bfloat16
    assert_same(drover.torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]]))
    assert_same(drover.torch.tensor(torch.arange(6.0).reshape(2, 3).t()), torch.arange(6.0).reshape(2, 3).t())
    with pytest.raises(drover.InvalidArgument, match="not a valid size"):
        drover.torch.zeros(3, -1)


def test_two_processes_share_memory() -> None:
    """A model in slabs that a child writes to; torch's own shared memory works, too."""
    lines = run("""
        import torch
        import drover
        import drover.torch

        def work(model, shared, results):
            with torch.no_grad():
                model.weight.fill_(3.0)
                shared.fill_(4.0)
            results.put(torch.full((5,), 2.0, dtype=torch.bfloat16))

        model = torch.nn.Linear(100, 100)
        model.weight = torch.nn.Parameter(drover.torch.tensor(model.weight))
        shared = torch.zeros(1000).share_memory_()
        results = drover.Queue()
        child = drover.Process(target=work, args=(model, shared, results))
        child.start()
        print(results.get())
        child.join()
        print(child.exitcode, float(model.weight[7, 7].detach()), float(shared[7]))
    """)
    assert lines == ["tensor([2., 2., 2., 2., 2.], dtype=torch.bfloat16)", "0 3.0 4.0"]


@pytest.mark.parametrize("count", [60, 1000])
def test_states_of_many_tensors_come_back(count: int) -> None:
    """Large and small ones, nested, each independent of the sender's from then on."""
    state = {str(number): torch.full((number % 200 * 100,), float(number)) for number in range(count)}
    line = drover.Queue()
    line.put({"state": state, "step": 7})
    for tensor in state.values():
        tensor.fill_(-1)
    back = line.get()
    assert back["step"] == 7
    for number in range(count):
        assert_same(back["state"][str(number)], torch.full((number % 200 * 100,), float(number)))


@pytest.mark.parametrize("zeros", [torch.zeros, drover.torch.zeros], ids=["torch", "slab"])
def test_attributes_that_memory_does_not_have_come_back(zeros: Any) -> None:
    """In a structure, where plain tensors are found and opened without Python code."""
    size = 8192
    numbers = zeros(size, dtype=torch.complex64)
    numbers.copy_(torch.complex(torch.arange(float(size)), torch.ones(size)))
    named = zeros(size)
    named.label = "named"
    state = {
        "plain": zeros(size),
        "conjugate": numbers.conj(),
        "negative": numbers.conj().imag,
        "learned": zeros(size).requires_grad_(),
        "named": named,
        "own": zeros(size).as_subclass(Own),
        "none": zeros(0),
        "deep": zeros(1, 1, 1, 1, 1, 1, 1, 1, size),
        "expanded": zeros(1).expand(size),
    }
    back = round_trip(state)
    for key, tensor in state.items():
        same = (type(tensor), tensor.dtype, tensor.requires_grad)
        assert (type(back[key]), back[key].dtype, back[key].requires_grad) == same, key
        assert torch.equal(back[key], tensor), key
    assert back["named"].label == "named"


def test_torchs_shared_memory_stays_shared_in_structures() -> None:
    """A tensor that is large, that torch shares, and that is not alone."""
    shared, own = torch.zeros(8192).share_memory_(), torch.zeros(8192)
    back_shared, back_own = round_trip([shared, own])
    shared[3] = own[3] = 7
    assert (back_shared[3], back_own[3]) == (7, 0)


def test_sequences_of_tensors_are_sequences() -> None:
    """Whose tensors become Python objects when they are asked for."""
    _, tensors = _objects.dumps([torch.full((8192,), float(number)) for number in range(3)])
    assert (len(tensors), bool(tensors), len(list(tensors))) == (3, True, 3)
    first, *others = tensors
    assert [torch.from_dlpack(each)[0].item() for each in (first, *others, tensors[-1])] == [0, 1, 2, 2]
    assert [torch.from_dlpack(each)[0].item() for each in tensors[::-2]] == [2, 0]
    for index in (3, -4):
        with pytest.raises(IndexError):
            tensors[index]


@on_gpu
def test_gpu_state_of_many_tensors_comes_back() -> None:
    """Large and small ones, more than a message carries."""
    state = {str(number): torch.full((number * 10,), float(number), device="cuda") for number in range(200)}
    for name, tensor in round_trip(state).items():
        assert_same(tensor, state[name])


@on_gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gpu_tensors_come_back(dtype: Any) -> None:
    """Of every dtype and layout."""
    for seed in range(5):
        made = make(random.Random(seed), dtype)
        tensor = made.detach().cuda().requires_grad_(made.requires_grad)
        assert_same(round_trip(tensor), tensor)


def forms(tensor: Any) -> list[Any]:
    """Return views of a matrix: strided, transposed, expanded, with many dimensions, with none, and empty."""
    views = [tensor, tensor[3:], tensor[::2, 1:], tensor.t(), tensor[:1].expand(5, -1), tensor[1, 2], tensor[:0]]
    return [*views, tensor[None, None, None], tensor[(None,) * 8]]


@on_gpu
@pytest.mark.parametrize("is_in_slab", [True, False], ids=["slab", "torch"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gpu_tensors_come_back_in_every_layout(dtype: Any, is_in_slab: bool) -> None:
    """If they lie in a slab: as the whole message, where most need no pickle, and nested. Others are copied."""
    tensor = torch.arange(60, device="cuda").reshape(6, 10).to(dtype)
    if is_in_slab:
        tensor = drover.torch.tensor(tensor, device="cuda")
    is_known = dtype not in (torch.bool, torch.float8_e4m3fn, torch.uint16)
    assert drover.torch._add_alone(tensor, _core.Arrays()) is is_known
    line = drover.Queue()
    for view in forms(tensor):
        line.put(view)
        line.put([view])
        for back in (line.get(), line.get()[0]):
            assert_same(back, view)
            if view.numel() and is_in_slab:
                assert (back.data_ptr(), back.stride()) == (view.data_ptr(), view.stride())
            elif view.numel():
                assert back.data_ptr() != view.data_ptr()
    if dtype.is_complex:
        assert_same(round_trip(tensor.conj()), tensor.conj())


@on_gpu
def test_gpu_tensors_keep_requires_grad() -> None:
    """They are pickled even as the whole message, since a drover tensor has no such flag."""
    tensor = drover.torch.zeros(10, device="cuda")
    leaf = tensor.detach().requires_grad_()
    assert not drover.torch._add_alone(leaf, _core.Arrays())
    assert_same(round_trip(leaf), leaf)
    parameter = torch.nn.Parameter(tensor)
    assert_same(round_trip(parameter), parameter)


@on_gpu
@pytest.mark.parametrize("zeros", [drover.torch.zeros, torch.zeros], ids=["slab", "torch"])
def test_gpu_tensors_are_received_after_the_work_on_them(zeros: Any) -> None:
    """The receiver's current stream waits for the sender's."""
    tensor = zeros(1 << 24, dtype=torch.int64, device="cuda")
    line = drover.Queue()
    for number in range(20):
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor.fill_(-1)
            tensor.fill_(number)
            line.put(tensor)
        with torch.cuda.stream(torch.cuda.Stream()):
            assert int(line.get()[-1]) == number


@on_gpu
def test_gpu_memory_of_torch_is_freed_when_the_receiver_is_done() -> None:
    """However often it was sent; memory of new tensors does not pile up."""
    lines = run("""
        import time
        import torch
        import drover

        MIB = 1 << 20

        def take(tensors, results):
            torch.zeros(1, device="cuda")
            while (got := tensors.get()) is not None:
                results.put(int(got[-1]))

        tensors, results = drover.Queue(), drover.Queue()
        child = drover.Process(target=take, args=(tensors, results))
        child.start()

        def send(tensor, number):
            tensor[-1] = number
            tensors.put(tensor)
            assert results.get() == number

        def comes_back():
            deadline = time.monotonic() + 20
            while torch.cuda.memory_allocated() > before and time.monotonic() < deadline:
                tensors.put(drover.zeros(1, dtype="uint8"))  # makes the receiver release dropped memory
                results.get()
            return torch.cuda.memory_allocated() - before

        before = torch.cuda.memory_allocated()
        same = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
        for number in range(100):
            send(same, number)
        del same
        print(comes_back())
        most = 0
        for number in range(100):
            send(torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda"), number)
            most = max(most, torch.cuda.memory_allocated() - before)
        print(comes_back(), most <= 24 * 64 * MIB)
        tensors.put(None)
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["0", "0 True", "0"]


@on_gpu
def test_gpu_graphs_are_captured_while_received_memory_is_closed() -> None:
    """Another thread closes it, which must not break the capture."""
    lines = run("""
        import time
        import torch
        import drover

        def send(tensors, is_done):
            tensors.put(torch.arange(1000, device="cuda"))
            is_done.wait()

        tensors, is_done = drover.Queue(), drover.Event()
        child = drover.Process(target=send, args=(tensors, is_done))
        child.start()
        x = torch.zeros(1000, device="cuda")
        x += 1
        torch.cuda.synchronize()
        got = tensors.get()
        print(int(got.sum()))
        torch.cuda._sleep(100_000_000)  # so that work is in flight when it is dropped
        y = got + 1
        del got
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x += 1
            time.sleep(0.3)
            x += 1
        graph.replay()
        torch.cuda.synchronize()
        print(float(x[0]), int(y[-1]))
        drover.empty(1)  # releases memory whose work is done
        is_done.set()
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["499500", "3.0 1000", "0"]


def test_captures_are_noticed_from_begin_to_end() -> None:
    """With a stand-in for torch's graph, however the capture ends."""

    class Graph:
        def capture_begin(self, pool: object = None) -> object:
            return pool

        def capture_end(self) -> None:
            assert _core.CaptureNotice.exists()
            raise RuntimeError

    drover.torch._notice_captures(Graph)
    graph = Graph()
    assert not _core.CaptureNotice.exists()
    assert graph.capture_begin(pool=3) == 3
    assert _core.CaptureNotice.exists()
    with pytest.raises(RuntimeError):
        graph.capture_end()
    assert not _core.CaptureNotice.exists()
    graph.capture_begin()
    del graph
    assert not _core.CaptureNotice.exists()
    assert torch.cuda.CUDAGraph.capture_begin.__wrapped__


@on_gpu
def test_gpu_graphs_are_captured_while_another_thread_sends_and_receives() -> None:
    """And closes what it received: none of it breaks the capture, although CUDA's strictest mode is on."""
    lines = run("""
        import threading
        import time
        import torch
        import drover

        def answer(tensors, answers):
            while (tensor := tensors.get()) is not None:
                answers.put((tensor + 1, int(tensor[-1])))

        def exchange():  # without torch, which breaks the capture when it loads a kernel or waits
            while not is_over.is_set():
                number = len(counts) % len(made)
                tensors.put(made[number])
                tensor, last = answers.get()
                counts.append(last == number)
                kept[:] = [tensor]
                del tensor
                if len(counts) % 2 == 0:
                    kept.clear()
                    time.sleep(0.15)  # lets received memory be closed

        tensors, answers = drover.Queue(), drover.Queue()
        child = drover.Process(target=answer, args=(tensors, answers), daemon=True)
        child.start()
        x = torch.zeros(1000, device="cuda")
        x += 1
        made = [torch.full((1 << 20,), n, device="cuda") for n in range(40)]
        tensors.put(x)
        answers.get()
        is_over, counts, kept = threading.Event(), [], []
        thread = threading.Thread(target=exchange)
        thread.start()
        try:
            for _ in range(5):
                before = len(counts)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):  # in the strictest mode, "global"
                    x += 1
                    time.sleep(0.5)
                    x += 1
                print(len(counts) > before + 1)
                graph.replay()
            torch.cuda.synchronize()
        finally:
            is_over.set()
            thread.join()
        print(float(x[0]), all(counts))
        kept.clear()
        tensors.put(None)
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["True"] * 5 + ["11.0 True", "0"]


@on_gpu
def test_gpu_tensors_can_be_received_but_not_sent_during_a_capture() -> None:
    """Sent elements would only be there after a launch, so put raises; the capture goes on."""
    lines = run("""
        import torch
        import drover

        def echo(tensors, answers):
            while (tensor := tensors.get()) is not None:
                answers.put(tensor * 2)

        tensors, answers = drover.Queue(), drover.Queue()
        child = drover.Process(target=echo, args=(tensors, answers), daemon=True)
        child.start()
        x = torch.ones(1000, device="cuda")
        tensors.put(x)
        tensors.put(x)
        dropped = answers.get()
        sum = torch.zeros(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            received = answers.get()
            sum += received
            del dropped
            try:
                tensors.put(sum)
            except drover.InvalidArgument as error:
                print(error)
            answer = [received, {"x": x}]
            try:
                tensors.put(answer)
            except drover.InvalidArgument as error:
                print(error.remedy)
        for _ in range(3):
            graph.replay()
        tensors.put(sum)
        print(float(answers.get()[0]))
        del graph, received, answer
        tensors.put(None)
        child.join()
        print(child.exitcode)
    """)
    assert "captures a graph" in lines[0]
    assert "before or after the capture" in lines[-3]
    assert lines[-2:] == ["12.0", "0"]


def test_arrays_of_unknown_libraries_are_an_error() -> None:
    """A newer version of drover might send them."""
    with pytest.raises(pickle.UnpicklingError, match="library 200"):
        _objects.loads(b"\x02\xc8", [_core.copied(_session.current(), b"1")])


@on_gpu
def test_two_processes_share_gpu_memory() -> None:
    """The parent's tensor, which the child writes to, and the child's tensor while the child lives."""
    lines = run("""
        import torch
        import drover

        def work(tensor, results, is_read):
            tensor.fill_(3.0)
            own = torch.arange(100_000, device="cuda", dtype=torch.float32)
            results.put((tensor[::2], own + 1))
            is_read.wait()

        tensor = torch.zeros(1_000_000, device="cuda")
        results, is_read = drover.Queue(), drover.Event()
        child = drover.Process(target=work, args=(tensor, results, is_read))
        child.start()
        part, own = results.get()
        # Reading the part waits for the child's work; after that, the whole is as the child left it.
        print(float(part.sum()), float(tensor.sum()), float(own[-1]))
        del part, own
        is_read.set()
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["1500000.0 3000000.0 100000.0", "0"]
