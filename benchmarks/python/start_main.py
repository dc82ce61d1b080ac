"""Start-up: the time until every worker of the first and of the second pool has run a task, with imports done."""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import Row, progress, report, row

ROUNDS = 5
CHILD = "--one"
BUSY_S = 0.005
METRICS = ("first pool", "second pool")


@dataclass(frozen=True)
class Starter:
    """A way to start workers: a function that makes an executor, and one that ends it."""

    name: str
    start: Callable[[int], Any]
    stop: Callable[[Any], None]
    prepare: Callable[[list[str]], None] = lambda _: None


def _shut_down(pool: Any) -> None:
    pool.shutdown()


def _drover(name: str, ahead: bool = True, is_warm: bool = False, has_template: bool = True) -> Starter:
    if not ahead:
        os.environ["DROVER_START_AHEAD"] = "0"
    import drover  # noqa: PLC0415 (other contenders run without it)

    def prepare(modules: list[str]) -> None:
        del modules  # drover knows which modules the program has imported
        drover.use_template(has_template)
        if is_warm and not drover.warm_up():
            raise RuntimeError("no template was started, so there is nothing to measure")

    return Starter(name, drover.Executor, _shut_down, prepare)


def _standard(method: str) -> Starter:
    context = multiprocessing.get_context(method)

    def prepare(modules: list[str]) -> None:
        if method == "forkserver":
            context.set_forkserver_preload(modules)

    name = "multiprocessing, forkserver with preload" if method == "forkserver" else f"multiprocessing, {method}"
    return Starter(name, lambda workers: ProcessPoolExecutor(workers, mp_context=context), _shut_down, prepare)


def _loky() -> Starter:
    loky = importlib.import_module("loky")
    return Starter("loky", loky.ProcessPoolExecutor, _shut_down)


class _RayTasks:
    """A Ray cluster with an interface of futures."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._ray.remote(function).remote(*args).future()

    def shutdown(self) -> None:
        importlib.import_module("contenders").stop_ray()


def _ray() -> Starter:
    importlib.import_module("ray")
    contenders = importlib.import_module("contenders")
    return Starter("ray, with its cluster", lambda workers: _RayTasks(contenders.start_ray(workers)), _shut_down)


STARTERS: dict[str, Callable[[], Starter]] = {
    "drover": lambda: _drover("drover"),
    "drover, warmed up": lambda: _drover("drover, warmed up", is_warm=True),
    "drover, nothing in advance": lambda: _drover("drover, nothing in advance", ahead=False),
    "drover, without a template": lambda: _drover("drover, without a template", ahead=False, has_template=False),
    "multiprocessing, spawn": lambda: _standard("spawn"),
    "multiprocessing, forkserver with preload": lambda: _standard("forkserver"),
    "loky": _loky,
    "ray, with its cluster": _ray,
}


def first_task(module: str, uses_cuda: bool) -> int:
    """Do what programs do first in a worker: use the library and, on request, a GPU."""
    library = importlib.import_module(module) if module else None
    if uses_cuda:
        library.zeros(1, device="cuda").item()
    time.sleep(BUSY_S)  # keeps fast workers from taking the tasks of slow ones
    return os.getpid()


def measure_one(name: str, module: str, workers: int, uses_cuda: bool) -> list[float]:
    """Measure the first and the second pool of a program that has just imported everything, in milliseconds."""
    starter = STARTERS[name]()
    if module:
        importlib.import_module(module)
    starter.prepare([module] if module else [])
    return [_measure_pool(starter, module, workers, uses_cuda) for _ in METRICS]


def _measure_pool(starter: Starter, module: str, workers: int, uses_cuda: bool) -> float:
    """Measure until as many processes as there are workers have answered."""
    begin = time.perf_counter()
    pool = starter.start(workers)
    seen: set[int] = set()
    while len(seen) < workers:
        tasks = [pool.submit(first_task, module, uses_cuda) for _ in range(workers)]
        seen.update(task.result() for task in tasks)
    taken = time.perf_counter() - begin
    starter.stop(pool)
    return taken * 1e3


def run_one(name: str, module: str, workers: int, uses_cuda: bool) -> list[float] | None:
    """Measure in a new process, since templates and fork servers live as long as a program."""
    command = [sys.executable, __file__, CHILD, json.dumps([name, module, workers, uses_cuda])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    if done.returncode != 0:
        progress(f"{name} was skipped: it ended with status {done.returncode}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def measure(settings: argparse.Namespace) -> Iterator[Row]:
    """Run all contenders in turn."""
    modules = ["torch"] if settings.torch_cuda else ["", "numpy"] if settings.smoke else ["", "numpy", "torch"]
    for module in modules:
        library = "torch with a CUDA context" if settings.torch_cuda else module or "nothing"
        workload = f"{settings.workers} workers, {library} imported"
        samples: dict[str, list[list[float]]] = {}
        for _ in range(1 if settings.smoke else ROUNDS):
            for name in STARTERS:
                if settings.only in f"{workload} {name}":
                    progress(f"{workload}: {name}")
                    taken = run_one(name, module, settings.workers, settings.torch_cuda)
                    samples.setdefault(name, []).extend([] if taken is None else [taken])
        rows = [
            row(workload, name, metric, "ms", [value[index] for value in values])
            for index, metric in enumerate(METRICS)
            for name, values in samples.items()
            if values
        ]
        yield from rows
        for one in rows:
            limit = settings.limit_ms if one.metric == METRICS[1] else settings.first_limit_ms
            if one.contender == "drover" and 0 < limit < one.median:
                raise SystemExit(f"{workload}: drover took {one.median:.0f} ms for the {one.metric}")


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one short round to check that everything runs")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--only", default="", help="run contenders and workloads whose names contain this")
    parser.add_argument("--workers", type=int, default=4, help="number of workers")
    parser.add_argument("--torch-cuda", action="store_true", help="only torch, with a CUDA context in each worker")
    parser.add_argument("--limit-ms", type=float, default=0, help="fail if drover's second pool is slower than this")
    parser.add_argument("--first-limit-ms", type=float, default=0, help="fail if its first pool is slower than this")
    return parser.parse_args()


def main() -> None:
    """Measure everything, or in a child process one contender."""
    if CHILD in sys.argv[1:2]:
        print(json.dumps(measure_one(*json.loads(sys.argv[2]))))
        return
    settings = options()
    report(measure(settings), settings.json)


if __name__ == "__main__":
    main()
