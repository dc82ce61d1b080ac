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
SIZES = {"4 KiB": 4 * KIB, "1 MiB": MIB, "100 MiB": 100 * MIB, "1 GiB": GIB}
ROUNDS = 2
TRIPS = 200
WARM = 20
METRICS = ("put to usable", "put to value read")
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
    copies: bool = False  # every time, without a GPU


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
        Contender("drover, tensors as torch makes them", _plain, lambda: _drover().get_context(), copies=True),
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
    """Receive tensors until None; answer when each was usable, when its last number was read, and that number."""
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda").item()  # the initialisation of CUDA is not part of a hand-over
    outgoing.put("ready")
    while (got := incoming.get()) is not None:
        usable = time.perf_counter_ns()
        value = int(got[-1])
        read = time.perf_counter_ns()
        del got
        outgoing.put((usable, read, value))


def trip(tensor: torch.Tensor, number: int, queues: tuple[Any, Any]) -> tuple[float, float]:
    """Measure one hand-over in microseconds; all processes have the same clock.

    A stream writes the last number, and this process does not wait for it: the reader must still read it correctly.
    """
    tensor[-1] = number
    begin = time.perf_counter_ns()
    queues[0].put(tensor)
    usable, read, value = queues[1].get()
    if value != number:
        raise AssertionError(f"{value} was read where {number} had been written before the tensor was put")
    return (usable - begin) / 1e3, (read - begin) / 1e3


def measure_one(name: str, names: list[str], trips: int) -> dict[str, list[list[float]]]:
    """Measure both metrics of one contender for each size, in a new process."""
    contender = next(one for one in contenders() if one.name == name)
    contender.prepare()
    context = contender.context()
    queues = context.Queue(), context.Queue()
    child = context.Process(target=answer, args=queues, daemon=True)
    child.start()
    queues[1].get()
    samples: dict[str, list[list[float]]] = {}
    for size in names:
        tensor = contender.make(SIZES[size] // 8)
        taken = [trip(tensor, number, queues) for number in range(trips + min(WARM, trips))]
        samples[size] = [list(column) for column in zip(*taken[min(WARM, trips) :], strict=True)]
        del tensor
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


def sizes_for(contender: Contender, is_smoke: bool, only: str) -> list[str]:
    """Skip what is not selected, and what would only measure how fast memory is copied."""
    is_slow = contender.copies and device() == "cpu"
    most = MIB if is_smoke else 100 * MIB if is_slow else max(SIZES.values())
    return [name for name, size in SIZES.items() if size <= most and only in f"{name} {contender.name}"]


def measure(is_smoke: bool, only: str) -> Iterator[Row]:
    """Run all contenders in turn."""
    if device() == "cpu":
        progress("torch has no CUDA here: tensors in shared memory of the host are handed over instead")
    samples: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(1 if is_smoke else ROUNDS):
        for contender in contenders():
            names = sizes_for(contender, is_smoke, only)
            if not names:
                continue
            progress(f"tensors of torch on {device()}: {contender.name}")
            for size, columns in run_one(contender.name, names, 3 if is_smoke else TRIPS).items():
                for metric, values in zip(METRICS, columns, strict=True):
                    samples.setdefault((size, metric, contender.name), []).extend(values)
    for metric in METRICS:
        for size in SIZES:
            for contender in contenders():
                if values := samples.get((size, metric, contender.name)):
                    yield row(f"torch {device()}, {size}", contender.name, metric, "us", values)


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
