"""Views of tensors in torch's shared memory stay views, wherever they are sent: what the receiver writes is there."""

from __future__ import annotations

import numpy as np
import pytest
from drover import _objects
from programs import run

torch = pytest.importorskip("torch")

VIEWS = {
    "row": lambda x: x[3],
    "view of a view": lambda x: x[2:8][3],
    "columns": lambda x: x[:, ::3],
    "transposed": lambda x: x.t(),
    "part of transposed": lambda x: x.t()[1:3].t(),
    "narrowed": lambda x: x.narrow(0, 2, 3),
    "narrowed columns": lambda x: x.narrow(1, 1, 3),
    "bits": lambda x: x.view(torch.int32)[1],
    "one element": lambda x: x.view(-1)[5:6],
    "strided": lambda x: x.as_strided((3, 2), (x.shape[1], 1), x.shape[1] + 1),
    "chunk": lambda x: x.chunk(3)[1],
    "scalar": lambda x: x[4, 4],
    "parameter": lambda x: torch.nn.Parameter(x[5]).data,
    "numpy": lambda x: x.numpy(),
    "numpy row": lambda x: x.numpy()[4],
    "numpy transposed": lambda x: x.numpy().T[::2, ::-1],
    "numpy bits": lambda x: x.numpy()[2].view("i4"),
}


@pytest.mark.parametrize("columns", [10, 5000])
@pytest.mark.parametrize("by_reference", [False, True], ids=["message", "argument"])
@pytest.mark.parametrize("kind", VIEWS)
def test_view_is_not_copied(kind: str, by_reference: bool, columns: int) -> None:
    """Alone and in a structure, small and large, in messages and in arguments of processes."""
    whole = torch.zeros(10, columns).share_memory_()
    for wrap in (lambda thing: thing, lambda thing: {"one": [thing]}["one"]):
        view = VIEWS[kind](whole)
        back = _objects.loads(*_objects.dumps(wrap(view), by_reference=by_reference))
        back = back[0] if isinstance(back, list) else back
        assert type(back) is type(view)
        assert tuple(back.shape) == tuple(view.shape)
        back[...] = 7
        assert (view == 7).all()
        assert (whole != 0).sum() == np.prod(tuple(view.shape), dtype=int)
        whole.zero_()


def test_parameter_of_a_view_stays_shared() -> None:
    """With its type, beside an array of the same memory."""
    whole = torch.zeros(4, 6).share_memory_()
    back = _objects.loads(*_objects.dumps([torch.nn.Parameter(whole[1]), whole.numpy()[1]]))
    assert isinstance(back[0], torch.nn.Parameter)
    back[0].data.fill_(2)
    assert back[1].tolist() == whole[1].tolist() == [2] * 6


def test_array_of_a_private_tensor_is_a_value() -> None:
    """Only shared memory is shared."""
    whole = torch.zeros(4, 6)
    back = _objects.loads(*_objects.dumps([whole.numpy()]))[0]
    back[...] = 1
    assert whole.sum() == 0


def test_ten_children_fill_ten_rows() -> None:
    """By arguments of processes, by a pool, by a queue, and with numpy."""
    lines = run(
        """
        import drover
        import torch

        def fill(row):
            row[...] = 1

        def take(queue):
            for row in iter(queue.get, None):
                row.fill_(1)

        if __name__ == "__main__":
            whole = torch.zeros(10, 1000).share_memory_()
            children = [drover.Process(target=fill, args=(row,)) for row in whole]
            for child in children:
                child.start()
            for child in children:
                child.join()
            print("arguments", int(whole.sum()))
            for name, rows in (("tensors", list(whole)), ("arrays", list(whole.numpy()))):
                whole.zero_()
                with drover.Pool(2) as pool:
                    pool.map(fill, rows)
                print(name, int(whole.sum()))
            whole.zero_()
            queue = drover.Queue()
            child = drover.Process(target=take, args=(queue,))
            child.start()
            for row in [*whole, None]:
                queue.put(row)
            child.join()
            print("queue", int(whole.sum()))
        """
    )
    assert lines == ["arguments 10000", "tensors 10000", "arrays 10000", "queue 10000"]
