"""Pipes between two processes: round trips of small objects, a stream of them, arrays and bytes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import drover
import numpy
from support import Row, options, progress, report, row, timed

ROUNDS = 5
TRIPS = 2000
STREAM = 20_000


@dataclass(frozen=True)
class Plumber:
    """A way to make pipes and the processes at their other ends."""

    name: str
    context: Any


def plumbers() -> list[Plumber]:
    """All contenders that can run here, drover first."""
    return [
        Plumber("drover", drover.get_context()),
        Plumber("multiprocessing.Pipe", multiprocessing.get_context("spawn")),
    ]


def echo(end: Any) -> None:
    """Echo objects until the other end is closed."""
    while True:
        try:
            end.send(end.recv())
        except EOFError:
            return


def answer_last(end: Any) -> None:
    """Send back one number of each array, as a reader would."""
    while True:
        try:
            end.send(float(end.recv()[-1]))
        except EOFError:
            return


def answer_length(end: Any) -> None:
    """Send back the number of received bytes."""
    while True:
        try:
            end.send(len(end.recv_bytes()))
        except EOFError:
            return


def count(end: Any) -> None:
    """Receive as many objects as the first message says, then answer."""
    while True:
        try:
            expected = end.recv()
            for _ in range(expected):
                end.recv()
            end.send(expected)
        except EOFError:
            return


class Pair:
    """A pipe with a child process at its other end."""

    def __init__(self, plumber: Plumber, target: Callable[[Any], None]) -> None:
        """Start the child."""
        self.end, other = plumber.context.Pipe()
        self._child = plumber.context.Process(target=target, args=(other,), daemon=True)
        self._child.start()
        other.close()

    def trip(self, thing: Any) -> Any:
        """Make one round trip."""
        self.end.send(thing)
        return self.end.recv()

    def trip_of_bytes(self, thing: bytes) -> Any:
        """Send bytes and wait for the answer."""
        self.end.send_bytes(thing)
        return self.end.recv()

    def __enter__(self) -> Pair:
        """Start using it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipe, which ends the child."""
        self.end.close()
        self._child.join(30)


def round_trips(plumber: Plumber, thing: Any, trips: int) -> list[float]:
    """Measure single round trips in microseconds."""
    with Pair(plumber, echo) as pair:
        for _ in range(max(1, trips // 10)):
            assert pair.trip(thing) == thing
        return [timed(lambda: pair.trip(thing)) * 1e6 for _ in range(trips)]


def throughput(plumber: Plumber, total: int) -> list[float]:
    """Measure a stream of small objects in messages per second."""
    with Pair(plumber, count) as pair:
        assert pair.trip(0) == 0
        begin = time.perf_counter()
        pair.end.send(total)
        for i in range(total):
            pair.end.send(i)
        assert pair.end.recv() == total
        return [total / (time.perf_counter() - begin)]


def arrays(plumber: Plumber, megabytes: int, trips: int) -> list[float]:
    """Measure milliseconds from the send of an array until its reader has answered."""
    array = numpy.ones(megabytes * 131_072)
    with Pair(plumber, answer_last) as pair:
        assert pair.trip(array) == 1.0
        return [timed(lambda: pair.trip(array)) * 1e3 for _ in range(trips)]


def many_bytes(plumber: Plumber, megabytes: int, trips: int) -> list[float]:
    """Measure milliseconds from the send of bytes until their reader, which has a copy, has answered."""
    whole = bytes(megabytes << 20)
    with Pair(plumber, answer_length) as pair:
        assert pair.trip_of_bytes(whole) == len(whole)
        return [timed(lambda: pair.trip_of_bytes(whole)) * 1e3 for _ in range(trips)]


def measure(is_smoke: bool, only: str) -> Iterator[Row]:
    """Run all contenders in turn."""
    trips = 5 if is_smoke else TRIPS
    few = 1 if is_smoke else 3
    cases = {
        ("int", "round trip", "us"): lambda one: round_trips(one, 7, trips),
        ("dict", "round trip", "us"): lambda one: round_trips(one, {"step": 3, "loss": 0.25, "name": "a"}, trips),
        ("10 KB of text", "round trip", "us"): lambda one: round_trips(one, "x" * 10_000, trips),
        ("int", "stream", "messages/s"): lambda one: throughput(one, 50 if is_smoke else STREAM),
        ("numpy 1 MB", "there, read, answer", "ms"): lambda one: arrays(one, 1, 2 if is_smoke else 50),
        ("numpy 100 MB", "there, read, answer", "ms"): lambda one: arrays(one, 100, few),
        ("100 MB by send_bytes", "there, copied, answer", "ms"): lambda one: many_bytes(one, 100, few),
    }
    for (workload, metric, unit), case in cases.items():
        samples: dict[str, list[float]] = {}
        for _ in range(1 if is_smoke else ROUNDS):
            for plumber in plumbers():
                if only in f"{workload} {plumber.name} {metric}":
                    progress(f"{workload}, {metric}: {plumber.name}")
                    samples.setdefault(plumber.name, []).extend(case(plumber))
        for name, values in samples.items():
            yield row(workload, name, metric, unit, values)


if __name__ == "__main__":
    settings = options(__doc__)
    report(measure(settings.smoke, settings.only), settings.json)
