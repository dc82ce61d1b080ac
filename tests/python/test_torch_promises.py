"""What torch.multiprocessing promises on the CPU, kept by reference: `drover.torch.send("reference")`."""

from __future__ import annotations

import functools

import pytest
from programs import run

pytest.importorskip("torch")

STRATEGIES = ["file_descriptor", "file_system"]
HEAD = """
    import os, sys, time
    import drover, drover.torch
    import torch

    drover.torch.send("reference")
    torch.multiprocessing.set_sharing_strategy("{strategy}")

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    def in_shm():
        return {{name for name in os.listdir("/dev/shm") if name.startswith("torch_")}}
"""


def check(strategy: str, body: str) -> None:
    """Run a program that prints True for each promise that is kept."""
    lines = run(HEAD.format(strategy=strategy) + body)
    shown = [line for line in lines if line.endswith(("True", "False"))]  # the others are warnings of torch
    assert shown, lines
    assert [line for line in shown if line.endswith("False")] == [], lines


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tensors_of_messages_are_shared_in_both_directions(strategy: str) -> None:
    """Of every type, whole and in part; what a child puts outlives it."""
    check(
        strategy,
        """
    TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64]

    def fill(inward, filled):
        while (tensors := inward.get()) is not None:
            for tensor in tensors:
                tensor.fill_(1)
            filled.set()

    def give(outward, may_end):
        for dtype in TYPES:
            whole = torch.zeros(5, 5, dtype=dtype)
            outward.put(whole)
            outward.put(whole[:, 1])
        may_end.wait()

    if __name__ == "__main__":
        queue, filled, may_end = drover.Queue(), drover.Event(), drover.Event()
        child = drover.Process(target=fill, args=(queue, filled))
        child.start()
        for dtype in TYPES:
            for part in (lambda x: x, lambda x: x[2], lambda x: x[:, 1], lambda x: x.t()[1:]):
                whole = torch.zeros(5, 5, dtype=dtype)
                filled.clear()
                queue.put([part(whole), whole[:0]])
                filled.wait()
                print(dtype, bool((part(whole) == 1).all()) and int((whole != 0).sum()) == part(whole).numel())
        queue.put(None)
        child.join()
        giver = drover.Process(target=give, args=(queue, may_end))
        giver.start()
        got = [(queue.get(), queue.get()) for _ in TYPES]
        for whole, column in got:
            column.fill_(1)
            print(whole.dtype, bool((whole[:, 1] == 1).all()) and int((whole != 0).sum()) == 5)
        may_end.set()
        giver.join()
        print("after its end", all(int((whole != 0).sum()) == 5 for whole, _ in got))
        """,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_storages_keep_their_identity(strategy: str) -> None:
    """What returns to the process that put it is the same storage; what shares one shares it at the receiver."""
    check(
        strategy,
        """
    def relay(inward, outward):
        while (thing := inward.get()) is not None:
            storages = {x.untyped_storage()._cdata for x in thing if isinstance(x, torch.Tensor)}
            outward.put((len(storages) == 1, thing))

    if __name__ == "__main__":
        queue, back = drover.Queue(), drover.Queue()
        x = torch.randn(5, 5)
        data = [x.untyped_storage(), x, x[2], x[:, 1]]
        queue.put(data)
        new = queue.get()
        number = data[0]._cdata
        print("here", new[0]._cdata == number and all(y.untyped_storage()._cdata == number for y in new[1:]))
        child = drover.Process(target=relay, args=(queue, back))
        child.start()
        queue.put(data)
        is_one, new = back.get()
        print("there", is_one)
        new[1].fill_(10)
        print("back", bool((x == 10).all()) and all(y.untyped_storage()._cdata == number for y in new[1:]))
        new[2].fill_(3)
        print("part", bool((x[2] == 3).all()) and bool((new[3][2] == 3).all()))
        queue.put(None)
        child.join()
        """,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tasks_of_pools_fill_their_arguments(strategy: str) -> None:
    """And return tensors that they have made."""
    check(
        strategy,
        """
    def fill(buffer):
        buffer.fill_(3)

    def add_all(tensor):
        return tensor.sum(), [tensor, torch.ones(2, 2)]

    if __name__ == "__main__":
        with drover.Pool(2) as pool:
            buffers = [torch.zeros(2, 2) for _ in range(4)]
            pool.map(fill, buffers, 1)
            print("filled", all(bool((buffer == 3).all()) for buffer in buffers))
            results = pool.map(add_all, buffers, 1)
            print("results", all(total == 12 and bool((made == 1).all()) for total, (_, made) in results))
            results[0][1][0].zero_()
            print("returned", bool((buffers[0] == 0).all()))
        """,
    )


@functools.cache
def shared_variables(strategy: str) -> list[str]:
    """Share one variable of each kind; one program for all kinds, since each program imports torch."""
    return run(
        HEAD.format(strategy=strategy)
        + """
    def train(queue, results, is_written):
        variable = queue.get()
        results.put(type(variable))
        is_written.wait()
        expected = torch.arange(1.0, 26).view(5, 5)
        expected[0, 0] = 1000
        is_good = variable.detach().equal(expected) and variable.grad is None and not variable._backward_hooks
        variable.data[:] = 1
        if variable.requires_grad:
            variable.grad = torch.ones(5, 5)
        results.put((bool(is_good), variable.requires_grad))

    if __name__ == "__main__":
        values = torch.arange(1.0, 26).view(5, 5)
        variables = {
            "tensor": values.clone(),
            "leaf": values.clone().requires_grad_(),
            "parameter": torch.nn.Parameter(values.clone()),
        }
        for kind, variable in variables.items():
            if variable.requires_grad:
                variable.grad = torch.zeros(5, 5)
            queue, results, is_written = drover.Queue(), drover.Queue(), drover.Event()
            child = drover.Process(target=train, args=(queue, results, is_written))
            child.start()
            queue.put(variable)
            print(kind, "type", results.get() is type(variable))
            variable.data[0, 0] = 1000
            if variable.requires_grad:
                variable.grad.data[:] = 4
            is_written.set()
            print(kind, "there", results.get() == (True, variable.requires_grad))
            has_own = variable.grad is None or bool((variable.grad == 4).all())
            print(kind, "here", bool((variable.data == 1).all()) and has_own)
            child.join()
        """
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["tensor", "leaf", "parameter"])
def test_variables_are_shared_without_their_gradients(strategy: str, kind: str) -> None:
    """Both sides write to the data; each has a gradient of its own; types are kept."""
    lines = shared_variables(strategy)
    shown = [line for line in lines if line.startswith(f"{kind} ")]
    assert shown == [f"{kind} type True", f"{kind} there True", f"{kind} here True"], lines


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tensors_and_attributes_of_processes_are_inherited(strategy: str) -> None:
    """Also by subclasses of Process; children can compute gradients."""
    check(
        strategy,
        """
    class Adding(drover.Process):
        def __init__(self, tensor):
            super().__init__(daemon=True)
            self.tensor = tensor

        def run(self):
            self.tensor.add_(3)

    def differentiate():
        x = torch.ones(4, 4, requires_grad=True)
        (x * x).sum().backward()
        sys.exit(0 if bool((x.grad == 2).all()) else 1)

    if __name__ == "__main__":
        tensor = torch.zeros(5, 5)
        child = Adding(tensor.share_memory_())
        child.start()
        child.join()
        print("subclass", bool((tensor == 3).all()))
        x = torch.ones(4, 4, requires_grad=True)
        (x * x).sum().backward()  # starts torch's threads
        child = drover.Process(target=differentiate)
        child.start()
        child.join()
        print("gradients", child.exitcode == 0)
        """,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_forms_without_elements_or_a_device_are_sent(strategy: str) -> None:
    """With shape, strides and type; a tensor with a history is refused."""
    check(
        strategy,
        """
    if __name__ == "__main__":
        queue = drover.Queue()
        for tensor in (torch.tensor([]), torch.zeros(0, 3, 2), torch.zeros(3, 0, dtype=torch.int32), torch.tensor(5)):
            queue.put([tensor])
            back = queue.get()[0]
            is_same = back.shape == tensor.shape and back.dtype == tensor.dtype and back.equal(tensor)
            print(tuple(tensor.shape), is_same)
        meta = torch.zeros(3, 4, device="meta").t()
        queue.put([meta])
        back = queue.get()[0]
        print("meta", back.is_meta and back.shape == meta.shape and back.stride() == meta.stride())
        sparse = torch.eye(4).to_sparse()
        queue.put(sparse)
        print("sparse", queue.get().to_dense().equal(torch.eye(4)))
        for to_layout in ("to_sparse_csr", "to_sparse_csc"):
            queue.put(getattr(torch.eye(4), to_layout)())
            print(to_layout, queue.get().to_dense().equal(torch.eye(4)))
        history = torch.ones(3, requires_grad=True) * 2
        try:
            queue.put(history)
            print("history", False)
        except ValueError as error:
            print("history", "detach" in str(error))
        """,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_left_behind(strategy: str) -> None:
    """Neither descriptors nor files, whether a message is received or dropped."""
    check(
        strategy,
        """
    def take(queue, count):
        for _ in range(count):
            queue.get()

    def settles(what, limit):
        end = time.monotonic() + 30
        while what() > limit and time.monotonic() < end:
            time.sleep(0.01)
        return what() <= limit

    if __name__ == "__main__":
        files = in_shm()
        queue = drover.Queue()
        queue.put([torch.zeros(5, 5)])
        queue.get()
        before = descriptors()
        child = drover.Process(target=take, args=(queue, 20))
        child.start()
        for _ in range(20):
            queue.put([torch.zeros(5, 5), torch.ones(30_000)])
        child.join()
        for _ in range(20):
            queue.put([torch.zeros(5, 5)])
            queue.get()
        del child
        import gc
        gc.collect()
        print("descriptors", settles(descriptors, before + 2))
        print("files", settles(lambda: len(in_shm() - files), 0))
        """,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_messages_that_fail_leave_nothing_behind(strategy: str) -> None:
    """Because the rest cannot be pickled, or there is no room; also if a first attempt is repeated by value."""
    check(
        strategy,
        """
    import gc, queue, threading

    def settles(what, limit):
        end = time.monotonic() + 30
        while what() > limit and time.monotonic() < end:
            gc.collect()
            time.sleep(0.01)
        return what() <= limit

    if __name__ == "__main__":
        line = drover.Queue(1)
        line.put([torch.zeros(5, 5)])
        files, before = in_shm(), descriptors()
        for _ in range(10):
            try:
                line.put([torch.zeros(5, 5), threading.Lock()])
            except TypeError:
                pass
            try:
                line.put([torch.zeros(5, 5)], timeout=0)
            except queue.Full:
                pass
        line.get()
        line.put([torch.zeros(5, 5), lambda: 5])
        print("by value", line.get()[1]() == 5)
        print("descriptors", settles(descriptors, before))
        print("files", settles(lambda: len(in_shm() - files), 0))
        """,
    )


def test_shared_memory_is_as_torch_says() -> None:
    """`is_shared`, and moving a tensor that lies in shared memory already."""
    check(
        "file_descriptor",
        """
    if __name__ == "__main__":
        x = torch.randn(5, 5)
        print("not yet", not x.is_shared())
        y = x.share_memory_()
        print("now", y is x and x.is_shared() and x.share_memory_() is x)
        print("views", x[2].is_shared() and x.t().is_shared())
        queue = drover.Queue()
        z = torch.randn(5, 5)
        queue.put(z)
        back = queue.get()
        print("sent", z.is_shared() and back.is_shared())
        """,
    )
