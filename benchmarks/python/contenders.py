"""Ways to start processes and to pass objects between them, behind the same small interfaces."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import drover

RAY_ENDS_S = 3.0


@dataclass(frozen=True)
class Messenger:
    """A way to make queues and the processes that use them."""

    name: str
    make_queue: Callable[[], Any]
    start: Callable[..., Any]
    running: Callable[[], AbstractContextManager[Any]] = nullcontext  # entered around everything else
    slowness: int = 1  # divides the number of messages, so that others need not wait for it


@dataclass(frozen=True)
class Crew:
    """A way to map a function over items with workers."""

    name: str
    start: Callable[[int], Any]
    map: Callable[[Any, Callable[[Any], Any], list[Any], int], list[Any]]
    stop: Callable[[Any], None]
    share: Callable[[Any], Any] = lambda array: array  # makes an array visible to workers, if the contender can


def _module(name: str) -> Any:
    """Import a module; None if it is not installed, which skips its contenders."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _started(context: Any) -> Callable[..., Any]:
    def start(target: Callable[..., Any], *args: Any) -> Any:
        process = context.Process(target=target, args=args, daemon=True)
        process.start()
        return process

    return start


def _ray() -> Any:
    """Import Ray, but only for its turn, so that it does not slow down programs without it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return importlib.import_module("ray")


def start_ray(workers: int) -> Any:
    """Start a Ray cluster on this machine, with its server, its store and this many workers."""
    ray = _ray()
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    return ray


def stop_ray() -> None:
    """End the cluster, and wait for its servers to end, which would disturb the next contender."""
    _ray().shutdown()
    time.sleep(RAY_ENDS_S)


@contextmanager
def ray_cluster() -> Iterator[None]:
    """Run a Ray cluster for a scope; it must not run while others are measured."""
    start_ray(2)
    try:
        yield
    finally:
        stop_ray()


def _ray_queue() -> Any:
    return importlib.import_module("ray.util.queue").Queue()


class RayTask:
    """A Ray task that serves queues like a process."""

    def __init__(self, target: Callable[..., Any], *args: Any) -> None:
        """Start it."""
        self._result = _ray().remote(target).remote(*args)

    def join(self, timeout: float) -> None:
        """Wait for its end."""
        _ray().wait([self._result], timeout=timeout)


@functools.cache
def _ray_task(function: Callable[[Any], Any], is_of_many: bool) -> Any:
    """Make a task of a function once, as programs do: each new task is sent to the workers at its first use."""

    def one(item: Any) -> Any:
        return function(item)  # Ray accepts Python functions only

    def many(items: list[Any]) -> list[Any]:
        return [function(item) for item in items]

    return _ray().remote(many if is_of_many else one)


def _ray_map(ray: Any, function: Callable[[Any], Any], items: list[Any], chunk: int) -> list[Any]:
    """Call a function in Ray tasks; Ray passes the value of an item that is a reference."""
    task = _ray_task(function, is_of_many=chunk > 1)
    if chunk == 1:
        return ray.get([task.remote(item) for item in items])
    parts = [items[begin : begin + chunk] for begin in range(0, len(items), chunk)]
    return [result for part in ray.get([task.remote(part) for part in parts]) for result in part]


@functools.cache
def _ray_pools() -> Any:
    """Import Ray's pools without joblib, whose copy of loky would otherwise replace loky."""
    sys.modules["joblib"] = None  # type: ignore[assignment]
    try:
        _ray()
        return importlib.import_module("ray.util.multiprocessing")
    finally:
        del sys.modules["joblib"]


def _start_ray_pool(workers: int) -> Any:
    start_ray(workers)
    return _ray_pools().Pool(workers)


def _close_ray_pool(pool: Any) -> None:
    _close(pool)
    stop_ray()


def messengers() -> list[Messenger]:
    """All contenders that can run here, drover first."""
    spawn = multiprocessing.get_context("spawn")
    found = [
        Messenger("drover", drover.Queue, _started(drover.get_context())),
        Messenger("multiprocessing.Queue", spawn.Queue, _started(spawn)),
        Messenger("multiprocessing.SimpleQueue", spawn.SimpleQueue, _started(spawn)),
    ]
    if fifo := _module("faster_fifo"):
        importlib.import_module("faster_fifo_reduction")
        found.append(Messenger("faster_fifo.Queue", lambda: fifo.Queue(256 << 20), _started(spawn)))
    if torch := _module("torch.multiprocessing"):
        context = torch.get_context("spawn")
        found.append(Messenger("torch.multiprocessing.Queue", context.Queue, _started(context)))
    if find_spec("ray"):
        found.append(Messenger("ray.util.queue.Queue", _ray_queue, RayTask, ray_cluster, slowness=20))
    return found


def _close(pool: Any) -> None:
    pool.terminate()
    pool.join()


def crews() -> list[Crew]:
    """All contenders that can run here, drover first."""
    spawn = multiprocessing.get_context("spawn")

    def pool_map(pool: Any, function: Callable[[Any], Any], items: list[Any], chunk: int) -> list[Any]:
        return pool.map(function, items, chunksize=chunk)

    def executor_map(pool: Any, function: Callable[[Any], Any], items: list[Any], chunk: int) -> list[Any]:
        return list(pool.map(function, items, chunksize=chunk))

    found = [
        Crew("drover", drover.Pool, pool_map, _close, drover.array),
        Crew("drover.Executor", drover.Executor, executor_map, lambda pool: pool.shutdown(), drover.array),
        Crew("multiprocessing.Pool", spawn.Pool, pool_map, _close),
        Crew(
            "ProcessPoolExecutor",
            lambda workers: ProcessPoolExecutor(workers, mp_context=spawn),
            executor_map,
            lambda pool: pool.shutdown(),
        ),
    ]
    if loky := _module("loky"):
        found.append(Crew("loky", loky.ProcessPoolExecutor, executor_map, lambda pool: pool.shutdown()))
    if find_spec("ray"):
        found.append(Crew("ray, tasks", start_ray, _ray_map, lambda ray: stop_ray(), lambda array: _ray().put(array)))
        found.append(Crew("ray.util.multiprocessing.Pool", _start_ray_pool, pool_map, _close_ray_pool))
    return found
