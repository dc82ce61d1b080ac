"""Hand-over of torch's tensors to another process, on a GPU or otherwise in shared memory of the host."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from support import Row, options, progress, report, row

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"4 KiB": 4 * KIB, "1 MiB": MIB, "4 MiB": 4 * MIB, "100 MiB": 100 * MIB, "256 MiB": 256 * MIB, "1 GiB": GIB}
ROUNDS = 2
TRIPS = 200
LEAST_TRIPS = 10
MOST_BYTES = 40 * GIB  # that one contender sends of one workload
WARM = 20
TIMES = ("put to usable", "put to answered", "put to value read")
MEMORY = "memory of the GPU in use"
METRICS = {**dict.fromkeys(TIMES, "us"), MEMORY: "MiB"}
LOOK = 5  # the memory in use is asked for at each trip whose number this divides
CHILD = "--contender"
failed: set[str] = set()

Maker = Callable[[int], torch.Tensor]


@dataclass(frozen=True)
class Contender:
    """A way to make tensors, and the context of the queues and processes that hand them over."""

    name: str
    make: Maker
    context: Callable[[], Any]
    prepare: Callable[[], None] = lambda: None
    needs_cuda: bool = False


@dataclass(frozen=True)
class Workload:
    """What is handed over."""

    tensors: int
    size: int  # of each tensor, in bytes
    is_fresh: bool = False  # made anew for each hand-over

    @property
    def bytes(self) -> int:
        """The size of all tensors."""
        return self.tensors * self.size

    def trips(self, most: int) -> int:
        """The number of hand-overs to measure."""
        return min(most, max(LEAST_TRIPS, MOST_BYTES // self.bytes))

    def make(self, contender: Contender) -> Any:
        """A tensor, or a structure like the state of a module."""
        if self.tensors == 1:
            return contender.make(self.size // 8)
        return {f"layer{number}.weight": contender.make(self.size // 8) for number in range(self.tensors)}


WORKLOADS = {
    **{f"the same tensor of {name}": Workload(1, size) for name, size in SIZES.items()},
    **{f"a fresh tensor of {name}": Workload(1, size, True) for name, size in {**SIZES, "4 GiB": 4 * GIB}.items()},
    "a dict of 8 tensors of 1 MiB": Workload(8, MIB),
    "a state of 60 tensors of 1 MiB": Workload(60, MIB),
    "a fresh state of 60 tensors of 1 MiB": Workload(60, MIB, True),
    "a state of 1,000 tensors of 1 MiB": Workload(1000, MIB),
}


def last_of(made: Any) -> torch.Tensor:
    """Return the last tensor of a workload."""
    return made if isinstance(made, torch.Tensor) else next(reversed(made.values()))


def device() -> str:
    """The place of the tensors."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _drover() -> Any:
    import drover.torch  # noqa: PLC0415 (torch's own contender runs without it)

    return drover


def _use_slabs() -> None:
    _drover().torch.use_slabs()


def _plain(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device=device())


def _in_slab(count: int) -> torch.Tensor:
    return _drover().torch.zeros(count, dtype=torch.int64, device=device())


def contenders() -> list[Contender]:
    """All contenders that can run here, drover first."""
    found = [
        Contender("drover", _in_slab, lambda: _drover().get_context()),
        Contender("drover, tensors as torch makes them", _plain, lambda: _drover().get_context()),
        Contender(
            "drover, after use_slabs()",
            _plain,
            lambda: _drover().get_context(),
            prepare=_use_slabs,
            needs_cuda=True,
        ),
        Contender(
            "torch.multiprocessing.Queue",
            lambda count: _plain(count) if device() == "cuda" else _plain(count).share_memory_(),
            lambda: torch.multiprocessing.get_context("spawn"),
        ),
    ]
    return [one for one in found if device() == "cuda" or not one.needs_cuda]


def answer(incoming: Any, outgoing: Any) -> None:
    """Receive tensors until None; answer each when it is usable, and once more when its last number was read."""
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda").item()  # the initialisation of CUDA is not part of a hand-over
    outgoing.put("ready")
    while (got := incoming.get()) is not None:
        usable = time.perf_counter_ns()
        outgoing.put(usable)
        value = int(last_of(got)[-1])
        read = time.perf_counter_ns()
        del got
        outgoing.put((read, value))


def trip(made: Any, number: int, queues: tuple[Any, Any]) -> tuple[float, ...]:
    """Measure one hand-over in microseconds; all processes have the same clock.

    A stream writes the last number, and this process does not wait for it: the reader must still read it correctly.
    """
    last_of(made)[-1] = number
    begin = time.perf_counter_ns()
    queues[0].put(made)
    usable = queues[1].get()
    answered = time.perf_counter_ns()
    read, value = queues[1].get()
    if value != number:
        raise AssertionError(f"{value} was read where {number} had been written before the tensor was put")
    return tuple((end - begin) / 1e3 for end in (usable, answered, read))


def used_memory() -> float:
    """Return the memory in use on the GPU by all processes, in MiB; 0 without a GPU."""
    if device() == "cpu":
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB


def measure_one(name: str, names: list[str], trips: int) -> dict[str, list[list[float]]]:
    """Measure all metrics of one contender for each workload, in a new process."""
    contender = next(one for one in contenders() if one.name == name)
    contender.prepare()
    context = contender.context()
    queues = context.Queue(), context.Queue()
    child = context.Process(target=answer, args=queues, daemon=True)
    child.start()
    queues[1].get()
    samples: dict[str, list[list[float]]] = {}
    for one in names:
        work = WORKLOADS[one]
        count = work.trips(trips)
        made = work.make(contender)
        taken, memory = [], []
        for number in range(count + min(WARM, count)):
            if work.is_fresh:
                made = None  # its memory may be used for the next one
                made = work.make(contender)
            taken.append(trip(made, number, queues))
            if number % LOOK == 0:
                memory.append(used_memory())
        samples[one] = [list(column) for column in zip(*taken[min(WARM, count) :], strict=True)] + [[max(memory)]]
        made = None
    queues[0].put(None)
    child.join(30)
    return samples


def run_one(name: str, names: list[str], trips: int) -> dict[str, list[list[float]]]:
    """Measure in a new process, since a process chooses its CUDA allocator once.

    A contender that fails prints the reason, and the others are still measured.
    """
    command = [sys.executable, __file__, CHILD, json.dumps([name, names, trips])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=600)
    if done.returncode != 0:
        failed.add(name)
        progress(f"{name} was skipped: it ended with status {done.returncode}")
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def workloads_for(contender: Contender, is_smoke: bool, only: str) -> list[str]:
    """Skip what is not selected, and what would only measure how fast memory is copied."""
    most = 8 * MIB if is_smoke else 100 * MIB if device() == "cpu" else max(one.bytes for one in WORKLOADS.values())
    return [name for name, one in WORKLOADS.items() if one.bytes <= most and only in f"{name} {contender.name}"]


def measure(is_smoke: bool, only: str) -> Iterator[Row]:
    """Run all contenders in turn."""
    if device() == "cpu":
        progress("torch has no CUDA here: tensors in shared memory of the host are handed over instead")
    samples: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(1 if is_smoke else ROUNDS):
        for contender in contenders():
            names = workloads_for(contender, is_smoke, only)
            if not names:
                continue
            progress(f"tensors of torch on {device()}: {contender.name}")
            for name, columns in run_one(contender.name, names, 3 if is_smoke else TRIPS).items():
                for metric, values in zip(METRICS, columns, strict=True):
                    samples.setdefault((name, metric, contender.name), []).extend(values)
    for metric, unit in METRICS.items():
        for name in WORKLOADS:
            for contender in contenders():
                values = samples.get((name, metric, contender.name))
                if values and (metric != MEMORY or device() == "cuda"):
                    yield row(f"torch {device()}, {name}", contender.name, metric, unit, values)


def main() -> None:
    """Measure everything, or in a child process one contender."""
    if CHILD in sys.argv[1:2]:
        print(json.dumps(measure_one(*json.loads(sys.argv[2]))))
        return
    settings = options(__doc__)
    report(measure(settings.smoke, settings.only), settings.json)
    if failed:
        raise SystemExit(f"contenders that failed: {', '.join(sorted(failed))}")


if __name__ == "__main__":
    main()
