"""The ways to start processes and to hand objects between them, each behind the same few words."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import drover


@dataclass(frozen=True)
class Messenger:
    """A way to make queues, and processes that have them."""

    name: str
    make_queue: Callable[[], Any]
    start: Callable[..., Any]


@dataclass(frozen=True)
class Crew:
    """A way to map a function over items with some workers."""

    name: str
    start: Callable[[int], Any]
    map: Callable[[Any, Callable[[Any], Any], list[Any], int], list[Any]]
    stop: Callable[[Any], None]


def _module(name: str) -> Any:
    """Give a module, or nothing where it is not installed: its contenders are left out."""
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


def messengers() -> list[Messenger]:
    """Give all that can run here; drover first."""
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
    return found


def _close(pool: Any) -> None:
    pool.terminate()
    pool.join()


def crews() -> list[Crew]:
    """Give all that can run here; drover first."""
    spawn = multiprocessing.get_context("spawn")

    def pool_map(pool: Any, function: Callable[[Any], Any], items: list[Any], chunk: int) -> list[Any]:
        return pool.map(function, items, chunksize=chunk)

    def executor_map(pool: Any, function: Callable[[Any], Any], items: list[Any], chunk: int) -> list[Any]:
        return list(pool.map(function, items, chunksize=chunk))

    found = [
        Crew("drover", drover.Pool, pool_map, _close),
        Crew("drover.Executor", drover.Executor, executor_map, lambda pool: pool.shutdown()),
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
    return found
