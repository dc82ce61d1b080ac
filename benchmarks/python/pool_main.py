"""Pools: tiny tasks, start-up, and maps over large arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
from contenders import Crew, crews
from support import Row, options, progress, report, row, timed

ROUNDS = 3
TASKS = 10_000
WORKERS = 4
DICT = {"step": 3, "loss": 0.25, "name": "a"}


def same(number: int) -> int:
    """Return the argument."""
    return number


def total(array: Any) -> float:
    """Sum an array."""
    return float(array.sum())


def last(array: Any) -> float:
    """Read one number of an array."""
    return float(array[-1])


def tiny_tasks(crew: Crew, tasks: int, chunk: int) -> list[float]:
    """Measure a map over numbers in tasks per second."""
    pool = crew.start(WORKERS)
    try:
        items = list(range(tasks))
        crew.map(pool, same, items[: tasks // 10], chunk)
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            assert crew.map(pool, same, items, chunk) == items
            seconds.append(time.perf_counter() - begin)
        return [tasks / one for one in seconds]
    finally:
        crew.stop(pool)


def submitted(pool: Any, thing: Any) -> Callable[[], Any]:
    """Submit one call, and return the function that waits for its result."""
    if hasattr(pool, "apply_async"):
        return pool.apply_async(same, (thing,)).get
    return pool.submit(same, thing).result


def has_single_calls(pool: Any) -> bool:
    """Whether calls can be submitted one by one."""
    return hasattr(pool, "apply_async") or hasattr(pool, "submit")


def single_calls(crew: Crew, tasks: int) -> list[float]:
    """Measure calls that are submitted one by one, until all results have been read, in tasks per second."""
    pool = crew.start(WORKERS)
    try:
        seconds = []
        for count in (tasks // 10, tasks, tasks, tasks) if has_single_calls(pool) else ():
            begin = time.perf_counter()
            results = [submitted(pool, i) for i in range(count)]
            assert [result() for result in results] == list(range(count))
            seconds.append(time.perf_counter() - begin)
        return [tasks / one for one in seconds[1:]]
    finally:
        crew.stop(pool)


def call_trips(crew: Crew, thing: Any, trips: int) -> list[float]:
    """Measure single calls with this argument and result, in microseconds."""
    pool = crew.start(1)
    try:
        if not has_single_calls(pool):
            return []
        for _ in range(max(1, trips // 10)):
            assert submitted(pool, thing)() == thing
        return [timed(lambda: submitted(pool, thing)()) * 1e6 for _ in range(trips)]  # noqa: PLW0108 (submits too)
    finally:
        crew.stop(pool)


def large_bytes(crew: Crew, megabytes: int) -> list[float]:
    """Measure milliseconds of the first and of the second call with that many bytes."""
    pool = crew.start(1)
    try:
        crew.map(pool, len, [b""], 1)
        items = [bytes([i]) * (megabytes << 20) for i in range(2)]
        times = []
        for item in items:
            begin = time.perf_counter()
            assert crew.map(pool, len, [item], 1) == [len(item)]
            times.append((time.perf_counter() - begin) * 1e3)
        return times
    finally:
        crew.stop(pool)


def start_up(crew: Crew) -> list[float]:
    """Measure milliseconds until every worker has run a task."""

    def run() -> None:
        pool = crew.start(WORKERS)
        crew.map(pool, time.sleep, [0.001] * WORKERS, 1)
        made.append(pool)

    made: list[Any] = []
    seconds = timed(run)
    crew.stop(made[0])
    return [seconds * 1e3]


def large_arrays(crew: Crew, function: Any, arrays: list[Any], is_shared: bool = False) -> list[float]:
    """Measure milliseconds of a map over four arrays, which if shared are visible to workers beforehand."""
    pool = crew.start(WORKERS)
    try:
        items = [crew.share(array) for array in arrays] if is_shared else arrays
        expected = [function(array) for array in arrays]
        assert crew.map(pool, function, items, 1) == expected
        return [timed(lambda: crew.map(pool, function, items, 1)) * 1e3 for _ in range(3)]
    finally:
        crew.stop(pool)


def cases(is_smoke: bool) -> dict[tuple[str, str, str], Any]:
    """All measurements."""
    numbers = 131_072 * (1 if is_smoke else 100)
    plain = [numpy.full(numbers, float(i)) for i in range(4)]
    tasks = 200 if is_smoke else TASKS
    megabytes = 1 if is_smoke else 50
    return {
        ("tiny tasks, chunksize 1", "map", "tasks/s"): lambda crew: tiny_tasks(crew, tasks, 1),
        ("tiny tasks, chunksize 64", "map", "tasks/s"): lambda crew: tiny_tasks(crew, tasks, 64),
        ("tiny tasks, one by one", "apply_async or submit", "tasks/s"): lambda crew: single_calls(crew, tasks),
        ("int", "call and result", "us"): lambda crew: call_trips(crew, 7, tasks // 10),
        ("dict", "call and result", "us"): lambda crew: call_trips(crew, DICT, tasks // 10),
        ("50 MB of bytes", "first call", "ms"): lambda crew: large_bytes(crew, megabytes)[:1],
        ("50 MB of bytes", "second call", "ms"): lambda crew: large_bytes(crew, megabytes)[1:],
        ("4 workers", "start", "ms"): start_up,
        ("four arrays of 100 MB, plain", "map, last number", "ms"): lambda crew: large_arrays(crew, last, plain),
        ("four arrays of 100 MB, in slabs", "map, last number", "ms"): lambda crew: large_arrays(
            crew, last, plain, is_shared=True
        ),
        ("four arrays of 100 MB, plain", "map, sum", "ms"): lambda crew: large_arrays(crew, total, plain),
    }


def measure(is_smoke: bool, only: str) -> Iterator[Row]:
    """Run all contenders in turn."""
    for (workload, metric, unit), case in cases(is_smoke).items():
        samples: dict[str, list[float]] = {}
        for _ in range(1 if is_smoke else ROUNDS):
            for crew in crews():
                if only in f"{workload} {crew.name} {metric}":
                    progress(f"{workload}, {metric}: {crew.name}")
                    samples.setdefault(crew.name, []).extend(case(crew))
        for name, values in samples.items():
            if values:
                yield row(workload, name, metric, unit, values)


if __name__ == "__main__":
    settings = options(__doc__)
    report(measure(settings.smoke, settings.only), settings.json)
