"""A message is a value: whatever its way, arrays arrive as they were when sent, and shared ones stay shared."""

from __future__ import annotations

import functools

import pytest
from programs import run

pytest.importorskip("numpy")
pytest.importorskip("torch")

# Makes one object of each kind, overwrites it, and checks one that arrived. Small arrays travel in the pickle, large
# ones in shared memory.
PROGRAM = """
    import collections
    import dataclasses
    import drover, drover.torch
    import numpy
    import torch

    SIZES = (4, 30_000)
    Pair = collections.namedtuple("Pair", "tensor array")

    @dataclasses.dataclass
    class Sample:
        tensor: object
        array: object
        label: str = "label"

    def made(size):
        model = torch.nn.Linear(size, 2)
        model(torch.ones(size)).sum().backward()
        with torch.no_grad():
            model.weight.fill_(1.0)
        # As state_dict() of torch.optim.Adam; that class imports torch's compiler, which takes a second.
        moments = {
            number: {"step": torch.tensor(1.0), "exp_avg": torch.ones_like(one), "exp_avg_sq": torch.zeros_like(one)}
            for number, one in enumerate(parameter.detach() for parameter in model.parameters())
        }
        return {
            "array": numpy.ones(size),
            "tensor": torch.ones(size),
            "dict": {"tensor": torch.ones(size), "array": numpy.ones(size)},
            "dataclass": Sample(torch.ones(size), numpy.ones(size)),
            "namedtuple": Pair(torch.ones(size), numpy.ones(size)),
            "module": model,
            "state": {key: torch.ones_like(value) for key, value in model.state_dict().items()},
            "optimizer": {"state": moments, "param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), "params": [0, 1]}]},
        }

    def arrays_of(kind, thing):
        if kind in ("array", "tensor"):
            return [thing]
        if kind in ("dataclass", "namedtuple"):
            assert type(thing) is {"dataclass": Sample, "namedtuple": Pair}[kind]
            return [thing.tensor, thing.array]
        if kind == "module":
            return [thing.weight.data]
        if kind == "optimizer":
            return [state["exp_avg"] for state in thing["state"].values()]
        return list(thing.values())

    def overwrite(kind, thing, value=2.0):
        for array in arrays_of(kind, thing):
            array[...] = value

    def is_all(kind, thing, value=1.0):
        arrays = arrays_of(kind, thing)
        return len(arrays) > 0 and all(bool((array == value).all()) for array in arrays)

    def check(way, send):
        # send(kind, thing, overwrite) sends, calls overwrite() once it has, and returns what arrived.
        wrong = []
        for size in SIZES:
            for kind, thing in made(size).items():
                arrived = send(kind, thing, lambda: overwrite(kind, thing))
                if not is_all(kind, thing, 2.0):
                    wrong.append(f"{kind} {size} was not overwritten")
                if not is_all(kind, arrived):
                    wrong.append(f"{kind} {size} was overwritten at the receiver")
                overwrite(kind, arrived, 3.0)
                if not is_all(kind, thing, 2.0):
                    wrong.append(f"{kind} {size} was overwritten at the sender")
        print(way, *(wrong or ["right"]), sep=": ")

    def check_shared(way, send):
        # What lies in shared memory arrives as the same memory: each side sees what the other writes.
        wrong = []
        for size in SIZES:
            for name, array in {
                "drover": drover.array(numpy.ones(size)),
                "drover.torch": drover.torch.tensor(torch.ones(size)),
                "shared": drover.torch.share(torch.ones(size)),
                "torch": torch.ones(size).share_memory_(),
            }.items():
                thing = {"array": array, "part": array[1:]}
                arrived = send("dict", thing, lambda: overwrite("dict", thing))
                if not is_all("dict", arrived, 2.0):
                    wrong.append(f"{name} {size} was copied")
                overwrite("dict", arrived, 3.0)
                if not is_all("dict", thing, 3.0):
                    wrong.append(f"{name} {size} does not lead back")
        print(way, "shared", *(wrong or ["right"]), sep=": ")

    # At the other end.
    def relay(inward, outward):
        while (thing := inward.get()) is not None:
            outward.put(thing)

    def relay_ends(end):
        while (thing := end.recv()) is not None:
            end.send(thing)

    def same(thing):
        return thing

    def same_kind(kind, thing):
        return thing
"""


def check_all(program: str, *ways: str, shared: bool = True) -> None:
    """Run a program that checks these ways."""
    lines = [f"{way}: {what}right" for way in ways for what in ("", "shared: ")[: 1 + shared]]
    assert run(PROGRAM + program) == lines


QUEUES = ["Queue", "JoinableQueue", "SimpleQueue"]


@functools.cache
def lines_of_queues() -> list[str]:
    """Check each kind of queue; one program for all kinds, since each program imports torch."""
    return run(
        PROGRAM
        + """
    def to_own(kind, thing, overwrite):
        queue.put(thing)
        overwrite()
        return queue.get()

    def to_other(kind, thing, overwrite):
        queue.put(thing)
        overwrite()
        relay_queue.put(queue.get())
        return back.get()

    if __name__ == "__main__":
        for kind in (drover.Queue, drover.JoinableQueue, drover.SimpleQueue):
            queue, relay_queue, back = kind(), kind(), kind()
            process = drover.Process(target=relay, args=(relay_queue, back))
            process.start()
            for way, send in (("own", to_own), ("other", to_other)):
                check(f"{kind.__name__} {way}", send)
                check_shared(f"{kind.__name__} {way}", send)
            relay_queue.put(None)
            process.join()
"""
    )


@pytest.mark.parametrize("kind", QUEUES)
def test_queues(kind: str) -> None:
    """Within a process, where nothing hides that the memory is the same, and through another one."""
    lines = [line for line in lines_of_queues() if line.startswith(f"{kind} ")]
    assert lines == [f"{kind} {way}: {what}right" for way in ("own", "other") for what in ("", "shared: ")]


def test_pipes() -> None:
    """Both directions."""
    check_all(
        """
    def to_own(kind, thing, overwrite):
        one.send(thing)
        overwrite()
        return other.recv()

    def to_other(kind, thing, overwrite):
        mine.send(to_own(kind, thing, overwrite))
        return mine.recv()

    if __name__ == "__main__":
        one, other = drover.Pipe()
        mine, theirs = drover.Pipe()
        process = drover.Process(target=relay_ends, args=(theirs,))
        process.start()
        for way, send in (("own", to_own), ("other", to_other)):
            check(way, send)
            check_shared(way, send)
        mine.send(None)
        process.join()
""",
        "own",
        "other",
    )


def test_pools_and_executors() -> None:
    """Arguments are taken when a task is submitted, although its worker is still busy; results when it returns."""
    check_all(
        """
    def wait_then_same(event, thing):
        event.wait()
        return thing

    def by_pool(kind, thing, overwrite):
        event = drover.Event()
        result = pool.apply_async(wait_then_same, (event, thing))
        overwrite()
        event.set()
        return result.get()

    def by_map(kind, thing, overwrite):
        event = drover.Event()
        result = pool.starmap_async(wait_then_same, [(event, thing)])
        overwrite()
        event.set()
        return result.get()[0]

    def by_imap(kind, thing, overwrite):
        results = pool.imap(same, [thing])
        arrived = next(results)
        overwrite()
        return arrived

    def by_executor(kind, thing, overwrite):
        event = drover.Event()
        result = executor.submit(wait_then_same, event, thing=thing)
        overwrite()
        event.set()
        return result.result()

    if __name__ == "__main__":
        with drover.Pool(1) as pool, drover.Executor(1) as executor:
            for way, send in (("pool", by_pool), ("map", by_map), ("imap", by_imap), ("executor", by_executor)):
                check(way, send)
                check_shared(way, send)
""",
        "pool",
        "map",
        "imap",
        "executor",
    )


def test_results_are_of_the_moment_of_return() -> None:
    """A worker that goes on writing to what it has returned does not reach its caller."""
    check_all(
        """
    held = {}

    def make(kind, size):
        held[kind] = made(size)[kind]
        return held[kind]

    def spoil(kind):
        overwrite(kind, held[kind])
        return is_all(kind, held[kind], 2.0)

    if __name__ == "__main__":
        wrong = []
        with drover.Pool(1) as pool:
            for size in SIZES:
                for kind in made(1):
                    arrived = pool.apply(make, (kind, size))
                    spoilt = pool.apply(spoil, (kind,))
                    if not spoilt or not is_all(kind, arrived):
                        wrong.append(f"{kind} {size}")
        print("results", *(wrong or ["right"]), sep=": ")
""",
        "results",
        shared=False,
    )


def test_actors() -> None:
    """Arguments and results of their methods."""
    check_all(
        """
    class Holder:
        def hold(self, event, thing):
            event.wait()
            self.thing = thing

        def give(self):
            return self.thing

    def by_actor(kind, thing, overwrite):
        event = drover.Event()
        held = actor.hold(event, thing)
        overwrite()
        event.set()
        held.result()
        return actor.give().result()

    if __name__ == "__main__":
        with drover.Pool(1) as pool:
            actor = pool.actor(Holder)
            check("actor", by_actor)
            check_shared("actor", by_actor)
""",
        "actor",
    )


def test_managers() -> None:
    """Objects in a dict and a list of the manager, each time they are set and read."""
    check_all(
        """
    def by_dict(kind, thing, overwrite):
        items[kind] = thing
        overwrite()
        return items[kind]

    def by_list(kind, thing, overwrite):
        things.append(thing)
        overwrite()
        return things.pop()

    if __name__ == "__main__":
        with drover.Manager() as manager:
            items, things = manager.dict(), manager.list()
            for way, send in (("dict", by_dict), ("list", by_list)):
                check(way, send)
                check_shared(way, send)
            items.clear()
""",
        "dict",
        "list",
    )


def test_keep_and_recall() -> None:
    """Torch's own shared memory ends with its processes, so what is kept of it is a copy."""
    check_all(
        """
    def by_keep(kind, thing, overwrite):
        session.keep(kind, thing)
        overwrite()
        return session.recall(kind)

    if __name__ == "__main__":
        session = drover.Session()
        check("keep", by_keep)
        session.drop("dict")
        own = drover.array(numpy.ones(5))
        tensor = drover.torch.tensor(torch.ones(5))
        kept = session.keep("shared", {"own": own, "tensor": tensor, "plain": torch.ones(5)})
        own[:] = 2.0
        tensor.fill_(2.0)
        kept["plain"].fill_(2.0)
        recalled = session.recall("shared")
        print("keep: shared", "right" if all((one == 2.0).all() for one in recalled.values()) else "wrong", sep=": ")
""",
        "keep",
    )


def test_joblib() -> None:
    """Arguments and results."""
    pytest.importorskip("joblib")
    check_all(
        """
    import joblib

    def by_joblib(kind, thing, overwrite):
        (arrived,) = parallel([joblib.delayed(same_kind)(kind, thing)])
        overwrite()
        return arrived

    if __name__ == "__main__":
        with joblib.parallel_config("drover", n_jobs=2), joblib.Parallel(n_jobs=2) as parallel:
            check("joblib", by_joblib)
            check_shared("joblib", by_joblib)
""",
        "joblib",
    )
