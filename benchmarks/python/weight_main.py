"""Weight: what the import, an idle pool and unused queues take, in time and in memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from support import Row, options, progress, report, row

ROUNDS = 15
MEMORY_ROUNDS = 3
WORKERS = 4
QUEUES = 32
SET_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
# What a program imports of the standard library to have what drover's import gives.
STANDARD = ("pool", "queues", "synchronize", "connection", "sharedctypes")
# Programs have compiled byte code, as installed packages do.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

IMPORT = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"
SHOW = """
import sys, time

def show_memory():
    time.sleep(0.5)  # after which the memory of new processes grows no more
    print("ready", flush=True)
    sys.stdin.readline()
"""
POOL = f"""
{SHOW}
with context.Pool({WORKERS}) as pool:
    pool.map(time.sleep, [0.01] * {WORKERS}, chunksize=1)
    show_memory()
"""
QUEUE = f"""
{SHOW}
queues = [context.Queue()]  # makes what all queues need
queues[0].put(1)
queues[0].get()
show_memory()
queues += [context.Queue() for _ in range({QUEUES})]
show_memory()
"""


def context_of(name: str) -> str:
    """Return the statement that imports a contender."""
    method = name.partition(", ")[2]
    return (
        f"from multiprocessing import get_context; context = get_context({method!r})"
        if method
        else (f"import {name} as context")
    )


def memory_below(root: int) -> float:
    """Sum the proportional memory (PSS) of all descendants of a process, in KiB."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return float(sum(_pss(pid) for pid in found - {root}))


def _pss(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def measure_memory(name: str, source: str, times: int) -> list[float]:
    """Run a program and measure its memory, with that of its processes, as often as it shows it."""
    command = [sys.executable, "-c", f"{context_of(name)}\n{source}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        figures = []
        for _ in range(times):
            assert program.stdout.readline() == "ready\n"
            figures.append(memory_below(os.getpid()))
            program.stdin.write("\n")
            program.stdin.flush()
    return figures


def time_import(name: str) -> list[float]:
    """Measure the import, in milliseconds, in a new process that has imported nothing else."""
    modules = ", ".join(f"multiprocessing.{part}" for part in STANDARD) if name == "multiprocessing" else name
    command = [sys.executable, "-c", IMPORT.format(modules)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT)
    return [float(done.stdout) * 1e3]


def weigh_pool(name: str) -> list[float]:
    """Measure a program with an idle pool, in MB."""
    return [measure_memory(name, POOL, 1)[0] / 1024]


def weigh_queue(name: str) -> list[float]:
    """Measure one of many unused queues, in KiB."""
    before, after = measure_memory(name, QUEUE, 2)
    return [max(0.1, (after - before) / QUEUES)]


CASES: dict[tuple[str, str, str], tuple[Callable[[str], list[float]], int, tuple[str, ...]]] = {
    ("import", "in a new process", "ms"): (time_import, ROUNDS, ("drover", "multiprocessing")),
    (f"idle pool of {WORKERS}", "PSS of all processes", "MB"): (
        weigh_pool,
        MEMORY_ROUNDS,
        ("drover", *(f"multiprocessing, {method}" for method in ("fork", "spawn", "forkserver"))),
    ),
    ("unused queue", "PSS", "KiB"): (weigh_queue, MEMORY_ROUNDS, ("drover", "multiprocessing, spawn")),
}


def measure(is_smoke: bool, only: str) -> Iterator[Row]:
    """Run all contenders in turn."""
    for (workload, metric, unit), (case, rounds, names) in CASES.items():
        samples: dict[str, list[float]] = {}
        for _ in range(1 if is_smoke else rounds):
            for name in names:
                if only in f"{workload} {name} {metric}":
                    progress(f"{workload}, {metric}: {name}")
                    if name not in samples:
                        case(name)  # compiles the byte code
                    samples.setdefault(name, []).extend(case(name))
        for name, values in samples.items():
            yield row(workload, name, metric, unit, values)


if __name__ == "__main__":
    # A template has no parent: it becomes a child of this process.
    ctypes.CDLL(None).prctl(SET_SUBREAPER, 1, 0, 0, 0)
    settings = options(__doc__)
    report(measure(settings.smoke, settings.only), settings.json)
