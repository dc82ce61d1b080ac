"""A program that uses everything at once, and checks every result. Run and killed by mixed_storm.py.

    python tests/python/mixed_load.py SEED

It writes a line `beat KIND` after each round of each kind of work, until its standard input ends; then it finishes
the rounds, checks that no participant is left, and writes `clean`. If its session is lost it writes `lost` and the
error, and exits with status LOST.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import drover
import numpy
from drover import _session
from kills import Arrays, Traffic, check_status, is_right, started, work

LOST = 4
RETRIES = 1000
ITEMS = 60
STEPS = 200
MESSAGES = 1000
PATIENCE_S = 10.0
# A killed process. If the template was killed, too, then the exit status of its children is unknown: 255.
DEATHS = {-signal.SIGKILL, 255}


def beat(name: str) -> None:
    """Report that a round of this kind of work is complete and was right."""
    os.write(1, f"beat {name}\n".encode())


class Load:
    """Kinds of work, each repeated by a thread of its own until the program ends."""

    def __init__(self, seed: int) -> None:
        """Take the seed of what is random in the work."""
        self.is_over = threading.Event()
        self._numbers = random.Random(seed)
        self._failure: BaseException | None = None
        self._has_failed = threading.Event()

    def run(self) -> None:
        """Run all kinds of work until standard input ends or one of them fails; raise its error."""
        kinds = (self.map, self.futures, self.messages, self.locked, self.processes, self.managed)
        threads = [threading.Thread(target=self._repeat, args=(kind,), daemon=True) for kind in kinds]
        for thread in threads:
            thread.start()
        watch = threading.Thread(target=self._wait_for_end, daemon=True)
        watch.start()
        for thread in threads:
            while thread.is_alive() and not self._has_failed.is_set():
                thread.join(0.05)
        if self._failure is not None:
            raise self._failure

    def _wait_for_end(self) -> None:
        sys.stdin.read()
        self.is_over.set()

    def _repeat(self, kind: Callable[[], None]) -> None:
        try:
            while not self.is_over.is_set():
                kind()
        except BaseException as error:
            if not self._has_failed.is_set():
                self._failure = error
                self._has_failed.set()

    def map(self) -> None:
        """A pool that repeats lost tasks returns every result."""
        with drover.Pool(2, retry=RETRIES, output="discarded") as pool:
            for _ in range(self._numbers.randrange(1, 8)):
                results = pool.map(work, range(ITEMS), 1)
                assert len(results) == ITEMS
                assert all(map(is_right, range(ITEMS), results))
                beat("map")

    def futures(self) -> None:
        """Each future of an executor has its result, or names the worker that was lost."""
        with drover.Executor(2, output="discarded") as executor:
            for _ in range(self._numbers.randrange(1, 8)):
                futures = [executor.submit(work, item) for item in range(ITEMS)]
                for item, future in enumerate(futures):
                    with contextlib.suppress(drover.PeerLost, BrokenProcessPool):
                        assert is_right(item, future.result())
                beat("futures")

    def messages(self) -> None:
        """Messages arrive once and whole; a killed consumer loses one at most."""
        traffic = Traffic(Arrays, deaths=DEATHS)
        end = time.monotonic() + self._numbers.uniform(0.5, 4.0)
        taken = 0
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                taken += traffic.take(0.05)
            if taken >= MESSAGES:
                beat("messages")
                taken = 0
            traffic.replace_dead()
        traffic.finish()
        traffic.check()
        beat("messages")

    def locked(self) -> None:
        """A lock whose holder was killed is passed on, and no step of a process that ended by itself is missing."""
        value = drover.Value("q", 0)
        children = [started(add_steps, value) for _ in range(3)]
        for child in children:
            child.join()
            check_status(child.exitcode, DEATHS)
        full = sum(child.exitcode == 0 for child in children)
        assert full * STEPS <= value.value <= len(children) * STEPS, (full, value.value)
        beat("locked")

    def processes(self) -> None:
        """A process reports the status that it exits with; a nested one passes its result on."""
        line = drover.SimpleQueue()
        outer = started(nested, line, 7)
        outer.join()
        check_status(outer.exitcode, DEATHS)
        if outer.exitcode == 0:
            assert line.get() in (49, None)
        beat("processes")

    def managed(self) -> None:
        """A manager keeps what it was given, or its death is reported."""
        with contextlib.suppress(drover.PeerLost, EOFError, ConnectionError), drover.Manager() as manager:
            shared = manager.dict()
            for number in range(20):
                shared[number] = numpy.full(8, number)
            assert all(int(shared[number].sum()) == 8 * number for number in range(20))
        beat("managed")


def add_steps(value: Any) -> None:
    """Add to the value, step by step."""
    for _ in range(STEPS):
        with value.get_lock():
            value.value += 1


def nested(line: Any, number: int) -> None:
    """Compute the square in a process of this process; put None if that was killed."""
    inner = started(square, line, number)
    inner.join()
    check_status(inner.exitcode, DEATHS)
    if inner.exitcode != 0 and line.empty():
        line.put(None)


def square(line: Any, number: int) -> None:
    """Put the square of the number."""
    line.put(number * number)


def is_session_lost() -> bool:
    """Return whether the keeper has ended."""
    try:
        _session.current().check()
    except drover.PeerLost:
        return True
    return False


def participants() -> int:
    """Return how many processes are in the session, after waiting for all but this one to leave."""
    end = time.monotonic() + PATIENCE_S
    while (count := len(_session.current().participants())) > 1 and time.monotonic() < end:
        time.sleep(0.05)
    return count


def main(seed: int) -> int:
    """Run the load; return the exit status."""
    load = Load(seed)
    try:
        load.run()
    except (drover.Error, OSError, EOFError, BrokenProcessPool) as error:
        if not is_session_lost():
            raise
        print("lost", type(error).__name__, *str(error).split(), flush=True)
        return LOST
    left = participants()
    assert left == 1, f"{left} participants are left"
    print("clean", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
