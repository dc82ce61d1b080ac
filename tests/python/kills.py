"""Kills workers and processes at random while they work, and checks every result. Run by test_kills.py.

    python tests/python/kills.py WHAT KILLS SEED

WHAT is map, imap_unordered, executor, queue or tensors. Each round starts fresh processes, kills some at random
moments, and checks the results: with retries all of them must be right, without retries only documented losses are
allowed. At the end nothing may be left over: no participants, objects or memory of the session, no memory of a GPU,
and no descriptors of this process.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import drover
import numpy
from drover import _session

ITEMS = 400
LARGE = 5000  # numbers in an array, too many to be inline in a message
KILLS_PER_ROUND = 10
WORKERS = 3
TAKES_ALL = 0.1  # how often processes that are still starting are candidates, too

counts: collections.Counter[str] = collections.Counter()


def work(item: int) -> tuple[int, Any]:
    """Sleep, and return a result; every eighth one has an array in shared memory."""
    time.sleep(0.001)
    return item * item, numpy.full(LARGE, item) if item % 8 == 0 else None


def is_right(item: int, result: tuple[int, Any]) -> bool:
    """Return whether this is the result for an item."""
    square, array = result
    if item % 8 != 0:
        return square == item * item and array is None
    return square == item * item and array.shape == (LARGE,) and bool((array == item).all())


class Killer:
    """A thread that kills `kills` processes, chosen from `candidates()`, at random moments."""

    def __init__(self, candidates: Callable[[], list[int]], kills: int, numbers: random.Random) -> None:
        """Start the thread."""
        self.done = 0
        self.pids: set[int] = set()
        self._candidates = candidates
        self._kills = kills
        self._numbers = numbers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def is_finished(self) -> bool:
        """Whether all kills are done."""
        return self.done >= self._kills

    def _run(self) -> None:
        while not self.is_finished and not self._is_over.wait(self._numbers.uniform(0.0, 0.12)):
            pids = self._candidates()
            if pids:
                pid = self._numbers.choice(pids)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.pids.add(pid)
                    self.done += 1

    def stop(self) -> int:
        """Stop the thread; return the number of kills."""
        self._is_over.set()
        self._thread.join()
        return self.done


def workers_of(pool: Any, numbers: random.Random) -> list[int]:
    """Return the pids to choose from: workers that are ready, sometimes also those that are starting."""
    takes_all = numbers.random() < TAKES_ALL
    return [worker["pid"] for worker in pool.workers() if worker["pid"] > 0 and (takes_all or worker["is_ready"])]


def map_round(pool: drover.Pool, retry: int) -> None:
    """All results must be right; without retries, the first death may end the map instead."""
    try:
        results = pool.map(work, range(ITEMS), 1)
    except drover.PeerLost as error:
        check_loss(error, retry)
    else:
        assert len(results) == ITEMS
        assert all(map(is_right, range(ITEMS), results))
        counts["right"] += ITEMS


def unordered_round(pool: drover.Pool, retry: int) -> None:
    """Every task must return its result once, or raise: none is missing, none comes twice."""
    results = pool.imap_unordered(work, range(ITEMS))
    roots: list[int] = []
    lost = 0
    while True:
        try:
            result = next(results)
        except StopIteration:
            break
        except drover.PeerLost as error:
            check_loss(error, retry)
            lost += 1
            continue
        roots.append(round(result[0] ** 0.5))
        assert is_right(roots[-1], result)
    assert len(set(roots)) == len(roots)
    assert len(roots) + lost == ITEMS, (len(roots), lost)
    counts["right"] += len(roots)


def executor_round(executor: drover.Executor, retry: int) -> None:
    """Like map_round, but results come one by one, in order, until one raises."""
    results = executor.map(work, range(ITEMS))
    try:
        for item, result in enumerate(results):
            assert is_right(item, result)
            counts["right"] += 1
        assert item == ITEMS - 1
    except drover.PeerLost as error:
        check_loss(error, retry)
    except BrokenProcessPool as error:
        check_loss(error, retry)


def check_loss(error: Exception, retry: int) -> None:
    """Allow only documented losses: a task that is not retried, or workers that were killed while they started."""
    text = str(error)
    counts["lost"] += 1
    assert "could not be started" in text or (retry == 0 and "worker-" in text and "work" in text), text


def pool_rounds(round_of: Any, number: int, kills: int, numbers: random.Random) -> int:
    """Kill workers of a pool while tasks are done, until enough are killed; retries in every second round."""
    retry = 1000 if number % 2 == 0 else 0
    is_executor = round_of is executor_round
    make = drover.Executor if is_executor else drover.Pool
    with make(WORKERS, retry=retry, output="discarded") as one:
        killer = Killer(lambda: workers_of(one, numbers), kills, numbers)
        try:
            while not killer.is_finished and one.workers():
                round_of(one, retry)
        finally:
            killed = killer.stop()
        for name in ("retried", "restarts"):
            counts[name] += pool_of(one).statistics()[name]
        if any(worker["is_ready"] for worker in one.workers()):
            check_after(one, is_executor)
    return killed


def pool_of(one: drover.Pool | drover.Executor) -> drover.Pool:
    """Return the pool behind an executor."""
    return one._pool if isinstance(one, drover.Executor) else one


def check_after(one: Any, is_executor: bool) -> None:
    """Check that the pool works as before."""
    results = list(one.map(abs, range(-20, 0)))
    assert results == list(range(20, 0, -1)), results
    assert not is_executor or one.submit(pow, 2, 5).result() == 32


class Arrays:
    """Messages of numpy arrays; most have none."""

    @staticmethod
    def make(number: int) -> Any:
        """Return what goes into a message."""
        return numpy.full(LARGE, number) if number % 8 == 0 else None

    @staticmethod
    def spoil(made: Any) -> None:
        """Overwrite what was sent."""
        if made is not None:
            made.fill(-1)

    @staticmethod
    def check(received: Any, number: int) -> None:
        """Check what came out of a message."""
        assert (received is None) == (number % 8 != 0)
        assert received is None or (received.shape == (LARGE,) and (received == number).all())

    @staticmethod
    def prepare() -> None:
        """Create what stays until the end of this process."""

    @staticmethod
    def used_bytes() -> int:
        """Return the memory in use outside of the session."""
        return 0


class Tensors:
    """Messages of structures of plain tensors, as torch allocates them, on a GPU if there is one."""

    @staticmethod
    def device() -> str:
        """Return where the tensors lie."""
        import torch  # noqa: PLC0415 (only these programs need it)

        return "cuda" if torch.cuda.is_available() else "cpu"

    @staticmethod
    def make(number: int) -> Any:
        """Return one tensor, or a structure of some that share memory."""
        import torch  # noqa: PLC0415

        large = torch.full((LARGE,), number, device=Tensors.device())
        if number % 2 == 0:
            return large
        return {"whole": large, "part": large[7:], "small": [large[:5] + one for one in range(number % 40)]}

    @staticmethod
    def spoil(made: Any) -> None:
        """Overwrite what was sent."""
        (made["whole"] if isinstance(made, dict) else made).fill_(-1)

    @staticmethod
    def check(received: Any, number: int) -> None:
        """Check what came out of a message."""
        if number % 2 == 0:
            assert received.shape == (LARGE,)
            assert bool((received == number).all()), f"{received} is not {number}"
            return
        assert bool((received["whole"] == number).all()), f"{received} is not {number}"
        assert received["part"].data_ptr() == received["whole"][7:].data_ptr()
        assert [int(one[4]) for one in received["small"]] == [number + one for one in range(number % 40)]

    @staticmethod
    def prepare() -> None:
        """Create what stays until the end of this process: its CUDA context, and the session's timelines."""
        line = drover.Queue()
        line.put(Tensors.make(1))
        Tensors.check(line.get(), 1)

    @staticmethod
    def used_bytes() -> int:
        """Return the memory in use on the GPU."""
        import torch  # noqa: PLC0415

        if Tensors.device() == "cpu":
            return 0
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return total - free


def produce(line: drover.Queue, name: int, is_over: Any, kind: Any) -> None:
    """Put numbered messages until `is_over`, and overwrite each afterwards; then put how many there were."""
    number = 0
    while not is_over.is_set():
        made = kind.make(number)
        line.put((name, number, made))
        kind.spoil(made)
        number += 1
    line.put((name, number, "end"))


def consume(line: drover.Queue, results: drover.Queue, kind: Any) -> None:
    """Check and forward messages until None comes."""
    while (message := line.get()) is not None:
        name, number, received = message
        is_end = isinstance(received, str)
        if not is_end:
            kind.check(received, number)
        del message, received
        results.put((os.getpid(), name, number, is_end))
    results.put(None)


class Traffic:
    """Producers and consumers of a queue, which are replaced as they are killed, and the messages that arrived."""

    def __init__(self, kind: Any, deaths: Collection[int] = (-signal.SIGKILL,)) -> None:
        """Start producers and consumers; `deaths` are the exit codes of those that were killed."""
        self.kind, self.deaths = kind, deaths
        self.line, self.results = drover.Queue(40), drover.Queue(40)
        self.is_over = drover.Event()
        self.names = 0
        self.killed_consumers = 0
        self.killed_producers: set[int] = set()
        self.producers = {self._start_producer() for _ in range(2)}
        self.consumers = {self._start_consumer() for _ in range(2)}
        self.late = 0  # messages that arrived after later ones
        self.came: dict[int, list[int]] = {}  # the numbers from each producer
        self.ended: dict[int, int] = {}
        self.of_consumer: dict[tuple[int, int], int] = {}  # the last number from a producer that a consumer took
        self.consumer_pids: set[int] = set()

    def _start_producer(self) -> tuple[int, drover.Process]:
        self.names += 1
        return self.names, started(produce, self.line, self.names, self.is_over, self.kind)

    def _start_consumer(self) -> drover.Process:
        return started(consume, self.line, self.results, self.kind)

    def pids(self, numbers: random.Random) -> list[int]:
        """Return the pids to choose from: processes known to work, sometimes also those that are starting."""
        takes_all = numbers.random() < TAKES_ALL
        producers = [process.pid for name, process in list(self.producers) if takes_all or name in self.came]
        return producers + [one.pid for one in list(self.consumers) if takes_all or one.pid in self.consumer_pids]

    def take(self, timeout: float) -> bool:
        """Take one result and record its order; return False at the end of a consumer."""
        message = self.results.get(timeout=timeout)
        if message is None:
            return False
        pid, name, number, is_end = message
        # A consumer gets the messages of a producer in order, except for those that a killed consumer had taken.
        last = self.of_consumer.get((pid, name), -1)
        self.late += last > number
        self.of_consumer[pid, name] = max(last, number)
        self.consumer_pids.add(pid)
        if is_end:
            self.ended[name] = number
        else:
            self.came.setdefault(name, []).append(number)
        return True

    def replace_dead(self) -> None:
        """Start another process for each that was killed."""
        for _ in range(self._remove_dead_producers()):
            self.producers.add(self._start_producer())
        for _ in range(self._remove_dead_consumers()):
            self.consumers.add(self._start_consumer())

    def _remove_dead_producers(self) -> int:
        dead = [one for one in self.producers if self._is_killed(one[1])]
        self.killed_producers.update(name for name, _ in dead)
        self.producers.difference_update(dead)
        return len(dead)

    def _remove_dead_consumers(self) -> int:
        dead = [process for process in self.consumers if self._is_killed(process)]
        self.killed_consumers += len(dead)
        self.consumers.difference_update(dead)
        return len(dead)

    def _is_killed(self, process: drover.Process) -> bool:
        status = process.exitcode
        check_status(status, self.deaths)
        return status in self.deaths

    def finish(self) -> None:
        """End all processes, which may still be killed, and take the remaining messages."""
        self.is_over.set()
        while any(process.exitcode is None for _, process in self.producers):
            self._take_soon()
            self._remove_dead_producers()
            for _ in range(self._remove_dead_consumers()):
                self.consumers.add(self._start_consumer())
        ends = len(self.consumers)
        while any(process.exitcode is None for process in self.consumers):
            if ends > 0:
                with contextlib.suppress(queue.Full):
                    self.line.put(None, timeout=0.01)
                    ends -= 1
            self._take_soon()
        while self._take_soon():
            pass
        self._remove_dead_producers()
        self._remove_dead_consumers()

    def _take_soon(self) -> bool:
        """Take a result if there is one, or one comes soon."""
        try:
            self.take(0.02)
        except queue.Empty:
            return False
        return True

    def check(self) -> None:
        """Check that nothing came twice, and that at most one message per killed consumer is missing or late."""
        missing = 0
        for name, numbers in self.came.items():
            assert len(set(numbers)) == len(numbers), f"duplicates from producer {name}"
            last = self.ended.get(name, max(numbers) + 1)
            missing += last - len(numbers)
        alive = {name for name, _ in self.producers}
        missing += len(alive - self.ended.keys())  # the end of a producer is a message, too
        counts["right"] += sum(map(len, self.came.values()))
        counts["lost"] += missing
        counts["late"] += self.late
        assert missing + self.late <= self.killed_consumers, (missing, self.late, self.killed_consumers)
        assert self.ended.keys() <= alive | self.killed_producers


def check_status(status: int | None, deaths: Collection[int]) -> None:
    """Allow the end of a process by itself or by a kill; if the session is lost, raise that it is."""
    if status not in {None, 0, *deaths}:
        _session.current().check()
        raise AssertionError(f"a process ended with {status}")


def started(target: Callable[..., None], *args: Any) -> drover.Process:
    """Start a process."""
    process = drover.Process(target=target, args=args)
    process.start()
    return process


def queue_rounds(kind: Any, _: int, kills: int, numbers: random.Random) -> int:
    """Kill producers and consumers while messages pass between them."""
    traffic = Traffic(kind)
    killer = Killer(lambda: traffic.pids(numbers), kills, numbers)
    try:
        while not killer.is_finished:
            with contextlib.suppress(queue.Empty):
                traffic.take(0.05)
            traffic.replace_dead()
    finally:
        killed = killer.stop()
    traffic.finish()
    traffic.check()
    return killed


def left_behind(session: drover.Session, kind: Any) -> dict[str, int]:
    """Return counts of what exists, after waiting for processes and memory to go away."""
    gc.collect()
    tool = Path(drover.__file__).parent / "bin" / "drover"
    shown: dict[str, int] = {}
    for _ in range(100):
        state = json.loads(subprocess.check_output([tool, "session", "show", session.name, "--json"]))["session"]
        shown = {name: state[name] for name in ("participants", "starting", "objects", "slabs")}
        if shown["participants"] == 1 and not shown["slabs"] + shown["objects"]:
            break
        time.sleep(0.05)
    return shown | {"descriptors": len(os.listdir("/proc/self/fd")), "used_mib": kind.used_bytes() >> 20}


def rounds(kills: int) -> Iterator[int]:
    """Split the kills into rounds."""
    while kills > 0:
        yield min(kills, KILLS_PER_ROUND)
        kills -= KILLS_PER_ROUND


def main(what: str, kills: int, seed: int) -> None:
    """Run the rounds, and print a summary."""
    numbers = random.Random(seed)
    run, one = {
        "map": (pool_rounds, map_round),
        "imap_unordered": (pool_rounds, unordered_round),
        "executor": (pool_rounds, executor_round),
        "queue": (queue_rounds, Arrays),
        "tensors": (queue_rounds, Tensors),
    }[what]
    session = drover.Session(f"kills-{os.getpid()}")
    try:
        run(one, 0, 0, numbers)
        kind = one if run is queue_rounds else Arrays
        kind.prepare()
        before = left_behind(session, kind)
        killed = sum(run(one, number, count, numbers) for number, count in enumerate(rounds(kills)))
        for _ in range(20):  # the driver may still be freeing the contexts of killed processes
            after = left_behind(session, kind)
            # Fewer are fine: some things of the first round may have gone away only later.
            is_clean = all(after[what] <= count for what, count in before.items())
            if is_clean:
                break
            time.sleep(0.5)
        assert is_clean, f"leftovers: {before} before, {after} after {killed} kills"
        print(f"{what}: {killed} killed; {dict(counts)}; before and after: {after}")
    finally:
        session.end()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
