"""Queues between two processes: round trips of small objects, throughput, arrays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy
from contenders import Messenger, messengers
from support import Row, options, progress, report, row, timed

ROUNDS = 5
TRIPS = 2000
STREAM = 20_000
STOP = "stop"
DICT = {"step": 3, "loss": 0.25, "name": "a"}


def echo(incoming: Any, outgoing: Any) -> None:
    """Echo objects until the end marker."""
    while True:
        got = incoming.get()
        outgoing.put(got)
        if isinstance(got, str) and got == STOP:
            return


def answer_sums(incoming: Any, outgoing: Any) -> None:
    """Send back one number of each array, as a reader would."""
    while True:
        got = incoming.get()
        if isinstance(got, str) and got == STOP:
            return
        outgoing.put(float(got[-1]))


def count(incoming: Any, outgoing: Any) -> None:
    """Receive as many objects as each first message says, then answer; end after an empty one."""
    while expected := incoming.get():
        for _ in range(expected):
            incoming.get()
        outgoing.put(expected)


class Pair:
    """Two queues and a child process that serves them."""

    def __init__(self, messenger: Messenger, target: Any, last: Any) -> None:
        """Start the child."""
        self.there, self.back = messenger.make_queue(), messenger.make_queue()
        self._last = last
        self._child = messenger.start(target, self.there, self.back)

    def trip(self, thing: Any) -> Any:
        """Make one round trip."""
        self.there.put(thing)
        return self.back.get()

    def __enter__(self) -> Pair:
        """Start using it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        self.there.put(self._last)
        self._child.join(30)


def round_trips(messenger: Messenger, thing: Any, trips: int) -> list[float]:
    """Measure single round trips in microseconds."""
    trips = max(1, trips // messenger.slowness)
    with Pair(messenger, echo, STOP) as pair:
        for _ in range(max(1, trips // 10)):
            assert pair.trip(thing) == thing
        return [timed(lambda: pair.trip(thing)) * 1e6 for _ in range(trips)]


def throughput(messenger: Messenger, total: int, thing: Any) -> list[float]:
    """Measure a stream of small objects in messages per second."""
    total = max(1, total // messenger.slowness)
    with Pair(messenger, count, 0) as pair:
        pair.there.put(100)
        for _ in range(100):
            pair.there.put(thing)
        pair.back.get()
        begin = time.perf_counter()
        pair.there.put(total)
        for _ in range(total):
            pair.there.put(thing)
        pair.back.get()
        return [total / (time.perf_counter() - begin)]


def arrays(messenger: Messenger, megabytes: int, trips: int) -> list[float]:
    """Measure milliseconds from the put of an array until its reader has answered."""
    array = numpy.ones(megabytes * 131_072)
    with Pair(messenger, answer_sums, STOP) as pair:
        pair.trip(array)
        return [timed(lambda: pair.trip(array)) * 1e3 for _ in range(trips)]


def measure(is_smoke: bool, only: str) -> Iterator[Row]:
    """Run all contenders in turn."""
    rounds = 1 if is_smoke else ROUNDS
    trips = 5 if is_smoke else TRIPS
    stream = 50 if is_smoke else STREAM
    cases = {
        ("int", "round trip", "us"): lambda one: round_trips(one, 7, trips),
        ("dict", "round trip", "us"): lambda one: round_trips(one, DICT, trips),
        ("int", "stream", "messages/s"): lambda one: throughput(one, stream, 7),
        ("dict", "stream", "messages/s"): lambda one: throughput(one, stream, DICT),
        ("numpy 1 MB", "there, read, answer", "ms"): lambda one: arrays(one, 1, 2 if is_smoke else 50),
        ("numpy 100 MB", "there, read, answer", "ms"): lambda one: arrays(one, 100, 1 if is_smoke else 3),
    }
    for (workload, metric, unit), case in cases.items():
        samples: dict[str, list[float]] = {}
        for _ in range(rounds):
            for messenger in messengers():
                if only in f"{workload} {messenger.name} {metric}":
                    progress(f"{workload}, {metric}: {messenger.name}")
                    with messenger.running():
                        samples.setdefault(messenger.name, []).extend(case(messenger))
        for name, values in samples.items():
            yield row(workload, name, metric, unit, values)


if __name__ == "__main__":
    settings = options(__doc__)
    report(measure(settings.smoke, settings.only), settings.json)
