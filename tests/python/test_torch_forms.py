"""Torch tensors of unusual forms: without memory, nested, with gaps, and views of each other."""

from __future__ import annotations

from typing import Any

import drover
import pytest
from drover import _objects
from programs import run

torch = pytest.importorskip("torch")


def round_trip(thing: Any) -> Any:
    """Return the object as another process would receive it."""
    return _objects.loads(*_objects.dumps(thing))


@pytest.mark.parametrize("count", [10, 100_000])
@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("left", [0, 8])
def test_tensor_without_its_memory_is_refused(count: int, is_alone: bool, left: int) -> None:
    """Its storage was freed or cut, as libraries do to save memory: there is nothing to send."""
    tensor = torch.ones(count)
    tensor.untyped_storage().resize_(left)
    with pytest.raises(
        drover.InvalidArgument, match=f"its elements need {4 * count} bytes of its storage, .* {left}"
    ):
        _objects.dumps(tensor if is_alone else [tensor])
    tensor.untyped_storage().resize_(4 * count)
    tensor.fill_(2)
    assert (round_trip(tensor) == 2).all()


def test_strided_tensors_may_repeat_elements_of_a_short_storage() -> None:
    """The check of storages counts strides, not elements."""
    for tensor in (torch.ones(3).expand(1000, 3), torch.arange(10_000.0).as_strided((4000, 5000), (1, 1), 500)):
        assert torch.equal(round_trip([tensor])[0], tensor)


def test_memory_of_a_tensor_is_kept_until_it_is_copied() -> None:
    """Even if the tensor gets other memory while the rest of its message is pickled."""
    tensor = torch.ones(100_000)

    class Replacing:
        def __reduce__(self) -> Any:
            tensor.data = torch.zeros(3)
            torch.full((100_000,), 9.0)  # would reuse the memory
            return int, (4,)

    back = round_trip([tensor, Replacing()])
    assert back[1] == 4
    assert torch.equal(back[0], torch.ones(100_000))


def test_few_elements_of_a_large_tensor_use_little_memory() -> None:
    """Only the elements are copied, not what lies between them."""
    done = run(
        """
        import resource
        import torch
        import drover
        from drover import _objects

        base = torch.zeros(1 << 29, dtype=torch.uint8)
        view = base[:: 1 << 15].view(128, 128)
        _objects.dumps([torch.zeros(100_000)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        back = _objects.loads(*_objects.dumps([view]))[0]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(torch.equal(view, back), back.shape == view.shape, back.is_contiguous(), grown < 300_000 or grown)
        """
    )
    assert done == ["True True True True"]


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("columns", [3, 5000])
def test_nested_tensors_come_back(layout: Any, columns: int) -> None:
    """Alone and in structures; rows of different lengths."""
    rows = [torch.rand(length, columns) for length in (3, 5, 1)]
    nested = torch.nested.nested_tensor(rows, layout=layout)
    for back in (round_trip(nested), round_trip({"nested": [nested]})["nested"][0]):
        assert back.is_nested
        assert back.layout is layout
        assert all(torch.equal(got, row) for got, row in zip(back.unbind(), rows, strict=True))


@pytest.mark.parametrize("columns", [1, 1000, 100_000])
def test_tensor_and_its_view_share_elements_at_the_receiver(columns: int) -> None:
    """In either order, whatever their sizes, and if one of them is a parameter."""
    whole = torch.zeros(4, columns)
    for back in (round_trip((whole, whole[2])), round_trip((whole[2], whole))[::-1]):
        back[1].fill_(1)
        assert back[0].sum() == columns
        assert (back[0][2] == 1).all()
    parameter = torch.nn.Parameter(torch.zeros(4, columns))
    state = round_trip(
        {"parameter": parameter, "row": parameter.detach()[2], "bits": parameter.detach().view(torch.int32)}
    )
    state["row"].fill_(1)
    assert (state["parameter"][2] == 1).all()
    assert (state["bits"][2] != 0).all()
    assert isinstance(state["parameter"], torch.nn.Parameter)
