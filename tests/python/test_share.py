"""Structures that are moved into shared memory on purpose, with arrays of numpy, torch and CuPy."""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import Any, NamedTuple

import drover
import numpy as np
import pytest
from drover import _core, _objects, _session
from programs import run

torch = pytest.importorskip("torch")
import drover.torch  # noqa: E402 (only where torch is)

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use")


def is_sent_by_reference(thing: Any) -> bool:
    """Whether a receiver sees writes of this process."""
    back = _objects.loads(*_objects.dumps(thing))
    with torch.no_grad():
        thing.fill_(41) if isinstance(thing, torch.Tensor) else thing.fill(41)
    return bool((back == 41).all())


def test_module_is_shared_in_place() -> None:
    """Parameters, buffers and gradients keep their identity; tied weights and views stay tied."""
    inner = torch.nn.Linear(3, 3)
    model = torch.nn.Sequential(inner, torch.nn.BatchNorm1d(3), inner)
    model(torch.ones(2, 3)).sum().backward()
    weight, view, mean = inner.weight, inner.weight[1:], model[1].running_mean
    before = copy.deepcopy(model.state_dict())
    assert drover.torch.share(model) is model
    assert model[0].weight is model[2].weight is weight
    assert model[1].running_mean is mean
    assert all(torch.equal(model.state_dict()[name], old) for name, old in before.items())
    assert all(tensor.is_shared() for tensor in (*model.parameters(), *model.buffers(), weight.grad))
    assert weight.requires_grad
    assert weight.is_leaf
    assert view.data_ptr() == weight[1:].data_ptr(), "a view that the structure does not contain moves too"
    assert is_sent_by_reference(weight)
    assert torch.equal(view, torch.full((2, 3), 41.0))


def test_what_is_shared_already_stays() -> None:
    """Slabs, and torch's own shared memory."""
    model = drover.torch.share(torch.nn.Linear(2, 2))
    own, theirs, array = drover.torch.zeros(4), torch.zeros(4).share_memory_(), drover.zeros(4)
    addresses = [model.weight.data_ptr(), own.data_ptr(), theirs.data_ptr(), array.ctypes.data]
    assert drover.torch.share([model, own, theirs, array])[3] is array
    assert own.share_memory_() is own
    assert [model.weight.data_ptr(), own.data_ptr(), theirs.data_ptr(), array.ctypes.data] == addresses


class Pair(NamedTuple):
    """A namedtuple."""

    one: Any
    other: Any


@dataclasses.dataclass(frozen=True)
class Record:
    """A frozen dataclass."""

    tensor: Any
    array: Any
    text: str = "text"


def test_structures() -> None:
    """Of every kind, nested; arrays that shared memory still do, and a structure may contain itself."""
    tensor, array = torch.arange(6.0), np.arange(10)
    record = Record(tensor[2:], array[4:])
    inner: dict[Any, Any] = {"record": record, "pair": Pair(array, tensor), 3: (array[::-2],)}
    inner["self"] = inner
    whole = drover.torch.share([inner, collections.deque([array]), {tensor}, None, "text", 7])
    assert whole[0] is inner["self"] is inner
    assert inner["record"] is record
    assert isinstance(inner["pair"], Pair)
    assert inner["pair"].other is tensor
    shared = inner["pair"].one
    assert whole[1][0] is shared
    shared[4] = -4
    assert record.array[0] == -4
    assert inner[3][0].tolist() == [9, 7, 5, 3, 1]
    shared[9] = -9
    assert inner[3][0][0] == -9
    tensor[2] = 22
    assert record.tensor[0] == 22
    assert is_sent_by_reference(tensor)
    assert is_sent_by_reference(shared)
    assert _core.find_shared(_session.current(), np.ascontiguousarray(array)) is None


def test_optimizer_and_its_state() -> None:
    """The optimizer goes on with the same parameters."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    drover.torch.share([model, optimizer])
    moments = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    assert moments
    assert all(moment.is_shared() for moment in moments)
    before = model.weight.tolist()
    optimizer.step()
    assert model.weight.tolist() != before
    assert model.weight.is_shared()


def test_tensors_of_many_kinds() -> None:
    """Strides, dtypes, empty ones, results of computations, conjugates, and tensors made in inference mode."""
    base = torch.arange(24.0).reshape(4, 6)
    with torch.inference_mode():
        inferred = torch.ones(3)
    computed = torch.ones(3, requires_grad=True) * 2
    kinds = [base.t(), base[::2, 1:4], torch.tensor(3, dtype=torch.bfloat16), torch.zeros(0, 3), computed, inferred]
    kinds += [torch.tensor([1 + 2j]).conj(), torch.nn.Parameter(torch.ones(2))]
    before = [kind.detach().clone() for kind in kinds]
    strides = [kind.stride() for kind in kinds]
    drover.torch.share(kinds)
    for kind, old, stride in zip(kinds, before, strides, strict=True):
        assert torch.equal(kind.detach(), old)
        assert kind.stride() == stride
        assert kind.is_shared() or kind.numel() == 0
    assert computed.grad_fn is not None
    meta = torch.zeros(2, device="meta")
    assert drover.torch.share(meta) is meta


@pytest.mark.parametrize("kind", ["sparse", "nested", "quantized"])
def test_sparse_tensors_raise(kind: str) -> None:
    """With a remedy; everything else in the structure stays as it was."""
    tensor, array = torch.ones(3), np.ones(3)
    thing = {"tensor": tensor, "array": array, "more": [array], "bad": uncommon(kind)}
    with pytest.raises(drover.Unsupported, match="share the tensors that it consists of"):
        drover.torch.share(thing)
    assert not tensor.is_shared()
    assert thing["array"] is thing["more"][0] is array


def uncommon(kind: str) -> Any:
    """Return a tensor that is not one dense block of numbers."""
    if kind == "sparse":
        return torch.eye(3).to_sparse()
    if kind == "nested":
        return torch.nested.nested_tensor([torch.ones(3), torch.ones(5)])
    return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)


def test_views_are_found_beside_tensors_of_any_kind() -> None:
    """Tensors elsewhere in the program that have no storage do not matter."""
    others = [uncommon("sparse"), uncommon("nested"), torch.nn.LazyLinear(3), torch.empty(2, device="meta")]
    tensor = torch.zeros(4)
    view = tensor[1:]
    drover.torch.share(tensor)
    view.fill_(3)
    assert tensor.tolist() == [0, 3, 3, 3]
    assert len(others) == 4


def test_tensors_of_a_subclass_are_shared() -> None:
    """They keep their type and attributes."""

    class Named(torch.Tensor):
        pass

    tensor = torch.ones(4).as_subclass(Named)
    tensor.label = "n"
    assert drover.torch.share(tensor) is tensor
    assert tensor.is_shared()
    assert (type(tensor), tensor.label) == (Named, "n")


def test_arrays_of_every_kind_keep_their_form() -> None:
    """Subclasses, masks, order, strides, and whether they can be written."""

    class Named(np.ndarray):
        pass

    named = np.arange(4.0).view(Named)
    named.name = "n"
    frozen = np.arange(3)
    frozen.flags.writeable = False
    fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
    masked = np.ma.masked_array([1, 2, 3], [0, 1, 0])
    arrays = [named, frozen, fortran, masked, np.array(3.0), np.broadcast_to(np.arange(3), (4, 3))]
    moved = drover.torch.share(list(arrays))
    for new, old in zip(moved, arrays, strict=True):
        assert type(new) is type(old)
        assert (new.tolist(), new.strides, new.dtype) == (old.tolist(), old.strides, old.dtype)
        assert new.flags.writeable == old.flags.writeable
        assert not np.shares_memory(new, old)
    assert moved[0].name == "n"
    assert moved[3].mask.tolist() == [False, True, False]


def test_parts_of_an_array_share_in_any_order() -> None:
    """The whole may come after its parts; what lies between the parts is not copied."""
    whole = np.arange(1000)
    parts = drover.torch.share([whole[::10], whole[500:], whole])
    assert [part.tolist() for part in parts] == [whole[::10].tolist(), whole[500:].tolist(), whole.tolist()]
    parts[2][500] = -1
    assert parts[0][50] == parts[1][0] == -1


def test_few_elements_of_a_large_array_use_little_memory() -> None:
    """Pages of the gaps are never touched."""
    done = run(
        """
        import resource
        import drover.torch
        import numpy as np

        base = np.zeros(1 << 29, np.uint8)
        drover.zeros(3)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        shared = drover.torch.share([base[:: 1 << 22]])[0]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(shared.sum(), len(shared), grown < 100_000 or grown)
        """
    )
    assert done == ["0 128 True"]


def test_numpy_arrays_without_one_owner() -> None:
    """Arrays whose memory is not contiguous, structured arrays, and arrays of objects, which stay."""
    fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
    structured = np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])
    objects = np.array([None, "text"], dtype=object)
    moved = drover.torch.share([fortran, structured, objects, np.zeros(0)])
    assert moved[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert moved[1].dtype == structured.dtype
    assert moved[2] is objects
    assert _core.find_shared(_session.current(), moved[1].view("u1")) is not None


def test_methods_of_torch_on_the_cpu_are_unchanged() -> None:
    """They move tensors to torch's own shared memory."""
    tensor = torch.zeros(3)
    assert not tensor.is_shared()
    assert tensor.share_memory_() is tensor
    assert tensor.is_shared()
    assert tensor.untyped_storage().is_shared()
    model = torch.nn.Linear(2, 2)
    assert model.share_memory() is model
    assert model.weight.untyped_storage().is_shared()


def test_processes_train_one_model() -> None:
    """Each sees what the others write, through arguments and through messages."""
    text = run("""
        import torch
        import drover, drover.torch

        def add(model, inbox):
            other = inbox.get()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 1
            other["sum"] += 1

        if __name__ == "__main__":
            model = torch.nn.Linear(1000, 3)
            torch.nn.init.zeros_(model.weight)
            state = {"sum": torch.zeros(1)}
            drover.torch.share([model, state])
            inbox = drover.Queue()
            workers = [drover.Process(target=add, args=(model, inbox)) for _ in range(3)]
            for worker in workers:
                inbox.put(state)
                worker.start()
                worker.join()
            print(model.weight.mean().item(), state["sum"].item())
        """)
    assert text == ["3.0 3.0"]


@on_gpu
def test_gpu_tensors_are_moved_by_torch_s_own_methods() -> None:
    """In place, with all their views; `is_shared` tells."""
    text = run("""
        import torch
        import drover, drover.torch

        def add(model, tensor):
            with torch.no_grad():
                model.weight += 1
                tensor += 1
            torch.cuda.synchronize()

        if __name__ == "__main__":
            model = torch.nn.LSTM(4, 4).cuda()
            tensor = torch.zeros(1000, device="cuda")
            view = tensor[10:20]
            print(tensor.is_shared(), view.is_shared())
            linear = torch.nn.Linear(4, 4).cuda()
            tied, address = linear.weight[1:], tensor.data_ptr()
            linear.share_memory()
            model.share_memory()
            assert tensor.share_memory_() is tensor
            assert tensor.data_ptr() != address == address
            print(tensor.is_shared(), view.is_shared(), linear.weight.is_shared(), model.weight_ih_l0.is_shared())
            tied_before = tied.sum().item()
            child = drover.Process(target=add, args=(linear, tensor))
            child.start()
            child.join()
            print(tensor.sum().item(), view.sum().item(), round(tied.sum().item() - tied_before))
            model(torch.ones(2, 1, 4, device="cuda"))[0].sum().backward()
        """)
    assert text == ["False False", "True True True True", "1000.0 10.0 12"]


@on_gpu
def test_arrays_of_cupy_are_moved() -> None:
    """Parts of one allocation stay parts of one, on their device."""
    pytest.importorskip("cupy")
    text = run("""
        import cupy
        import drover, drover.cupy

        def add(parts):
            parts["whole"] += 1
            cupy.cuda.get_current_stream().synchronize()

        if __name__ == "__main__":
            whole = cupy.arange(1000.0)
            parts = drover.cupy.share({"whole": whole, "part": whole[::100]})
            assert drover.cupy.share(parts)["whole"] is parts["whole"]
            child = drover.Process(target=add, args=(parts,))
            child.start()
            child.join()
            print(parts["part"].tolist()[:3], whole[0].item())
        """)
    assert text == ["[1.0, 101.0, 201.0] 0.0"]
