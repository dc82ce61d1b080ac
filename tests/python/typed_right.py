"""A program in which type checkers find nothing; see test_types.py. It is checked, not run."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Iterator
from concurrent import futures
from multiprocessing.managers import SyncManager
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from typing import Any

import drover
import drover as multiprocessing
from drover import managers, sharedctypes
from drover.pool import AsyncResult, Pool
from typing_extensions import assert_type


def text_of(number: int, sign: str = "+") -> str:
    """Return a number as text."""
    return f"{sign}{number}"


def sum_of(*numbers: int) -> int:
    """Return a sum."""
    return sum(numbers)


def report(number: float) -> None:
    """Print a number."""
    print(number)


def use_pools(code: Callable[..., Any]) -> None:
    """Call functions in all ways."""
    with drover.Pool(2, initializer=report, initargs=(1.5,), devices="cuda:0", retry=1, per_device=2) as pool:
        assert_type(pool.map(text_of, range(3)), list[str])
        assert_type(pool.map(report, [1, 2.5], chunksize=2, progress=True), list[None])
        assert_type(pool.map(lambda number: number + 1, [1, 2]), list[int])
        assert_type(pool.map(len, ["a", [1]]), list[int])
        assert_type(pool.map(code, [1]), list[Any])
        assert_type(pool.starmap(text_of, [(1, "+"), (2, "-")]), list[str])
        assert_type(pool.apply(text_of, (1,), {"sign": "-"}), str)
        assert_type(pool.apply_async(text_of, (1,), callback=print).get(timeout=1.0), str)
        assert_type(pool.map_async(text_of, [1]).get(), list[str])
        assert_type(pool.starmap_async(text_of, [(1,)], error_callback=print).get(), list[str])
        assert_type(pool.imap(text_of, iter([1])).next(timeout=1), str)
        for made in pool.imap_unordered(text_of, range(3), chunksize=2):
            assert_type(made, str)
        assert_type(pool.options(timeout=5.0, retry=2).map(text_of, range(3)), list[str])
        for worker in pool.workers():
            print(worker["pid"])
    with multiprocessing.get_context("spawn").Pool(2, None, (), 5, output="discarded") as pool:
        assert_type(pool.map(text_of, range(3)), list[str])


def use_executors() -> None:
    """Results of an executor, and its place where the standard one is expected."""
    with drover.Executor(2, initializer=report, initargs=(1,), name="mine") as executor:
        assert_type(executor.submit(text_of, 3).result(), str)
        assert_type(executor.submit(text_of, 3, sign="-").result(timeout=1), str)
        assert_type(executor.map(text_of, [1, 2], timeout=3), Iterator[str])
        assert_type(executor.map(text_of, [1, 2], ["+", "-"]), Iterator[str])
        assert_type(executor.map(sum_of, [1], [2], [3]), Iterator[int])
        standard: futures.Executor = executor
        standard.submit(text_of, 3)
        waiting: list[futures.Future[str]] = [executor.submit(text_of, 3)]
        futures.wait(waiting)


def use_queues() -> None:
    """With and without the type of their items."""
    numbers: drover.Queue[int] = drover.Queue(3)
    numbers.put(1, timeout=0.5)
    assert_type(numbers.get(), int)
    assert_type(asyncio.run(numbers.get_async()), int)
    some = drover.Queue()
    some.put("anything")
    print(some.get().lower())
    named: drover.JoinableQueue[str] = drover.get_context().JoinableQueue()
    named.put_nowait("a")
    assert_type(named.get_nowait(), str)
    plain: drover.SimpleQueue = drover.SimpleQueue()
    plain.put(None)


def use_values(code: str) -> None:
    """By code and by type, with and without a lock."""
    count = drover.Value("i", 3)
    assert_type(count, Synchronized[int])
    with count.get_lock():
        count.value += 1
    assert_type(drover.Value("d").value, float)
    assert_type(drover.Value(ctypes.c_double, 2.5, lock=False), ctypes.c_double)
    assert_type(drover.Value(ctypes.c_long, 3).value, int)
    assert_type(drover.Array("d", [1.5, 2]), SynchronizedArray[float])
    drover.Array("i", range(3))[0] = 5
    drover.Array("c", b"text").value = b"more"
    print(drover.Value(code, 3), drover.RawValue("i", 3).value, drover.RawArray("d", 4)[0], drover.Array("u", 3))


def use_modules(shared: sharedctypes.Synchronized[int], server: managers.SyncManager) -> AsyncResult[str]:
    """Types from the modules of the package, as those of multiprocessing."""
    block = drover.shared_memory.SharedMemory(create=True, size=shared.value)
    print(block.buf, server.address, drover.connection.wait([]), drover.dummy.Pool(1))
    pool: Pool = drover.Pool(1)
    return pool.apply_async(text_of, (1,))


def use_the_rest() -> None:
    """Processes, contexts, locks, pipes, managers and arrays."""
    assert_type(drover.get_context("fork"), drover.DroverContext)
    process = drover.Process(target=text_of, args=(1,), kwargs={"sign": "-"}, daemon=True)
    process.start()
    process.join(timeout=1)
    here, there = drover.Pipe(duplex=False)
    there.send([1])
    print(here.recv(), here.poll(0.5))
    with drover.Lock(), drover.get_context().RLock():
        assert_type(drover.Condition(drover.Lock()).wait(1.0), bool)
    drover.Barrier(2, action=use_executors, timeout=3)
    with drover.Manager() as manager:
        assert_type(manager, SyncManager)
        print(manager.dict(), drover.array([1]).sum(), drover.zeros((2, 3), "f4").shape)
    print(drover.this_worker().name, drover.cpu_count(), drover.current_process().pid)
    try:
        drover.get_context().set_start_method("spawn", force=True)
    except drover.PeerLost as lost:
        print(lost.message, lost.remedy)
