"""How messages carry torch tensors outside of shared memory: by value or by reference."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import drover
import pytest
from drover import _objects
from programs import run

pytest.importorskip("torch")
import drover.torch

# Each way is used with a small tensor and a large one. A receiver writes; a line says whether the maker sees it.
PROGRAM = """
    import os
    import drover
    import torch

    SIZES = (4, 50_000)

    def fill(tensor):
        tensor.fill_(7.0)
        return tensor

    def fill_received(end, done):
        end.recv().fill_(7.0) if hasattr(end, "recv") else end.get().fill_(7.0)
        done.set()

    def fill_two(tensor, parameter):
        fill(tensor)
        fill(parameter.data)

    class Filler:
        def __init__(self, tensor):
            self.tensor = tensor

        def fill(self):
            fill(self.tensor)

        def give(self):
            return self.tensor

        def total(self):
            return self.tensor.sum().item()

    def seen(tensor):
        return bool((tensor == 7.0).all())

    def report(way, check):
        print(way, *{check(torch.zeros(size)) for size in SIZES})

    def through_queue(tensor):
        queue, done = drover.Queue(), drover.Event()
        queue.put(tensor)
        process = drover.Process(target=fill_received, args=(queue, done))
        process.start()
        done.wait()
        process.join()
        return seen(tensor)

    def through_pipe(tensor):
        (mine, theirs), done = drover.Pipe(), drover.Event()
        process = drover.Process(target=fill_received, args=(theirs, done))
        process.start()
        mine.send(tensor)
        done.wait()
        process.join()
        return seen(tensor)

    def as_process_argument(tensor):
        parameter = torch.nn.Parameter(torch.zeros_like(tensor))
        process = drover.Process(target=fill_two, args=(tensor,), kwargs={"parameter": parameter})
        process.start()
        process.join()
        return seen(tensor) and seen(parameter)

    def to_initializer(tensor):
        with drover.Pool(1, fill, (tensor,)) as pool:
            pool.apply(os.getpid)
        return seen(tensor)
"""
MAIN = """
    if __name__ == "__main__":
        with drover.Pool(1) as pool:
            report("queue", through_queue)
            report("pipe", through_pipe)
            report("argument", lambda tensor: pool.apply(fill, (tensor,)) is not None and seen(tensor))
            report("map", lambda tensor: pool.map(fill, [tensor]) is not None and seen(tensor))
            report("process", as_process_argument)
            report("initializer", to_initializer)

            def by_actor(tensor):
                actor = pool.actor(Filler, tensor)
                actor.fill().result()
                return seen(tensor)

            def result_of_actor(tensor):
                actor = pool.actor(Filler, torch.zeros_like(tensor))
                actor.give().result().fill_(7.0)
                return actor.total().result() == 7.0 * len(tensor)

            report("actor", by_actor)
            report("result", result_of_actor)
"""
BY_REFERENCE = ["process True", "initializer True", "actor True"]
MESSAGES = ["queue", "pipe", "argument", "map"]


@pytest.mark.parametrize(("mode", "is_shared"), [(None, False), ("value", False), ("reference", True)])
def test_sharing_follows_the_mode(mode: str | None, is_shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages follow it. Arguments of processes, initializers and actors are shared in either mode."""
    if mode is None:
        monkeypatch.delenv("DROVER_SEND", raising=False)
    else:
        monkeypatch.setenv("DROVER_SEND", mode)
    # What an actor holds is in shared memory because it came by reference, so its results share it in either mode.
    expected = [f"{way} {is_shared}" for way in MESSAGES] + BY_REFERENCE + ["result True"]
    assert run(PROGRAM + MAIN) == expected


def test_results_follow_the_mode() -> None:
    """A tensor that a task made and its worker holds on to: the caller's writes reach the worker or not."""
    program = """
        import drover, drover.torch
        import torch

        held = []

        def make(size):
            held.append(torch.zeros(size))
            return held[-1]

        def total():
            return held[-1].sum().item()

        if __name__ == "__main__":
            for mode in ("value", "reference"):
                drover.torch.send(mode)
                with drover.Pool(1) as pool:
                    for size in (4, 50_000):
                        pool.apply(make, (size,)).fill_(1.0)
                        print(mode, pool.apply(total))
    """
    assert run(program) == ["value 0.0", "value 0.0", "reference 4.0", "reference 50000.0"]


def test_message_by_value_is_of_the_moment_of_put() -> None:
    """What the sender writes between put and get is not received, unless it sends by reference."""
    program = """
        import drover, drover.torch
        import torch

        for mode, size in (("value", 4), ("value", 50_000), ("reference", 4), ("reference", 50_000)):
            drover.torch.send(mode)
            queue = drover.Queue()
            tensor = torch.ones(size)
            both = {"whole": tensor, "part": tensor[1:]}
            queue.put(both)
            tensor.zero_()
            got = queue.get()
            print(got["whole"].sum().item() == size, got["part"].sum().item() == size - 1)
            got["whole"].fill_(2.0)
            print(got["part"].sum().item() == 2.0 * (size - 1), tensor.sum().item())
    """
    by_reference = ["False False", "True 8.0", "False False", "True 100000.0"]
    assert run(program) == ["True True", "True 0.0"] * 2 + by_reference


@pytest.mark.parametrize("mode", ["value", "reference"])
def test_what_is_in_shared_memory_is_shared_in_either_mode(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's own share_memory_, by drover, and because it was received."""
    monkeypatch.setenv("DROVER_SEND", mode)
    text = run(
        PROGRAM
        + """
    if __name__ == "__main__":
        import drover.torch

        for size in SIZES:
            queue = drover.Queue()
            queue.put(drover.torch.zeros(size))
            for tensor in (torch.zeros(size).share_memory_(), drover.torch.share(torch.zeros(size)), queue.get()):
                print(through_queue(tensor), through_queue(tensor.zero_()))
    """
    )
    assert text == ["True True"] * 6


def test_torch_finds_its_storage_again() -> None:
    """A tensor in torch's shared memory that returns to its process has the same storage, as with torch's queues."""
    text = run("""
        import drover
        import torch

        tensor = torch.zeros(5, 5).share_memory_()
        queue = drover.Queue()
        queue.put([tensor, tensor[2]])
        print({got.untyped_storage()._cdata == tensor.untyped_storage()._cdata for got in queue.get()})
    """)
    assert text == ["{True}"]


def test_children_inherit_the_mode() -> None:
    """Those of send(), and of the variable; the latest call counts."""
    text = run("""
        import os
        import drover
        from drover import _objects

        def tell():
            return _objects.send_mode(), os.environ.get("DROVER_SEND")

        def put(queue):
            queue.put(tell())

        def ask():
            queue = drover.Queue()
            process = drover.Process(target=put, args=(queue,))
            process.start()
            told = queue.get()
            process.join()
            with drover.Pool(1) as pool:
                assert pool.apply(tell) == told
            return told

        if __name__ == "__main__":
            import drover.torch  # here only: the children need no torch

            print(*ask())
            drover.torch.send("reference")
            print(*ask())
            drover.torch.send("value")
            print(*ask())
    """)
    assert text == ["value None", "reference reference", "value value"]


@pytest.mark.parametrize("wrong", ["copy", "", None])
def test_invalid_mode_is_refused(wrong: Any) -> None:
    """With a remedy, and nothing changes."""
    before = _objects.send_mode()
    with pytest.raises(drover.InvalidArgument, match=repr(wrong)) as caught:
        drover.torch.send(wrong)
    assert "'value' or 'reference'" in caught.value.remedy
    assert _objects.send_mode() == before


def test_invalid_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first message, which names the variable."""
    monkeypatch.setenv("DROVER_SEND", "aliased")
    code = "import drover, torch; drover.Queue().put(torch.zeros(3))"
    ended = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "InvalidArgument: DROVER_SEND is 'aliased'" in ended.stderr
    assert "set it to 'value' or 'reference', or unset it" in ended.stderr
