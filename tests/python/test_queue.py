"""Queues: messages of every kind, their order, and the effects of deaths on other processes."""

from __future__ import annotations

import collections
import concurrent.futures
import datetime
import fractions
import math
import queue
import threading
import time

import drover
import pytest
from drover import _queue_reader, _queues
from programs import Program, run

KINDS = [
    None,
    True,
    -(2**100),
    2.5,
    3j,
    "text \N{GREEK SMALL LETTER ALPHA}",
    b"",
    b"x" * 100_000,
    bytearray(b"abc"),
    [1, [2, [3]]],
    {"a": {1, 2}, "b": (frozenset({3}),)},
    range(5),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    fractions.Fraction(1, 3),
    collections.Counter("abca"),
    int,
    len,
]


@pytest.mark.parametrize("kind", [drover.Queue, drover.JoinableQueue, drover.SimpleQueue])
def test_objects_come_out_unchanged_and_in_order(kind: type) -> None:
    """Objects of every kind, within one process."""
    line = kind()
    for thing in KINDS:
        line.put(thing)
    assert [line.get() for _ in KINDS] == KINDS
    assert line.empty()


def test_lambda_is_sent_by_value() -> None:
    """With its closure, although pickle alone cannot send it."""
    line = drover.Queue()
    offset = 5
    line.put(lambda number: number + offset)
    assert line.get()(1) == 6


def test_unbounded_queue_takes_everything_before_the_first_get() -> None:
    """More than the ring holds, from one thread, in order."""
    line = drover.Queue()
    for number in range(100_000):
        line.put(number)
    assert line.qsize() > 90_000
    assert [line.get() for _ in range(100_000)] == list(range(100_000))


def test_bounded_queue_is_full_at_its_bound() -> None:
    """With put_nowait and with a timeout."""
    line = drover.Queue(3)
    for number in range(3):
        line.put_nowait(number)
    assert line.full()
    with pytest.raises(queue.Full):
        line.put_nowait(3)
    with pytest.raises(queue.Full):
        line.put(3, timeout=0.01)
    assert line.get() == 0
    line.put(3, timeout=0.01)
    assert [line.get() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(queue.Empty):
        line.get_nowait()
    with pytest.raises(queue.Empty):
        line.get(timeout=0.01)


@pytest.mark.parametrize("timeout", [1e9, 1e15, 1e300, math.inf])
def test_longest_timeouts_mean_for_ever(timeout: float) -> None:
    """They neither overflow nor expire: in queues, readers, pipes, events, locks and results."""
    line, (one, other) = drover.Queue(1), drover.Pipe()
    late = threading.Timer(0.1, line.put, ["late"])
    late.start()
    assert line.get(timeout=timeout) == "late"
    line.fileno()
    later = threading.Timer(0.1, line.put, ["later"])
    later.start()
    assert line.get(timeout=timeout) == "later"
    last = threading.Timer(0.1, one.send, ["sent"])
    last.start()
    assert other.poll(timeout)
    assert other.recv() == "sent"
    assert drover.Lock().acquire(timeout=timeout)
    with drover.Pool(1) as pool:
        assert pool.options(timeout=timeout).apply(abs, (-3,)) == 3
        assert pool.apply_async(abs, (-4,)).get(timeout) == 4
    for timer in (late, later, last):
        timer.join()


def test_object_that_cannot_be_sent_raises_in_put() -> None:
    """The error names its type, and the queue is unchanged."""
    line = drover.JoinableQueue()
    with pytest.raises(TypeError, match=r"generator|lock"):
        line.put(number for number in range(3))
    assert line.empty()
    line.join()  # it was not counted


def test_closed_queue_raises() -> None:
    """The same errors as multiprocessing's."""
    line = drover.Queue()
    line.put(0)
    with pytest.raises(ValueError, match="not closed"):
        line.join_thread()
    line.close()
    line.join_thread()
    with pytest.raises(ValueError, match="is closed"):
        line.put(1)
    with pytest.raises(ValueError, match="is closed"):
        line.get()
    with pytest.raises(OSError, match="is closed"):
        line.empty()


def test_task_done_too_often_is_an_error() -> None:
    """As in multiprocessing."""
    line = drover.JoinableQueue()
    line.put(1)
    line.get()
    line.task_done()
    with pytest.raises(ValueError, match="too many times"):
        line.task_done()


def test_many_producers_and_consumers_lose_and_reorder_nothing() -> None:
    """Each consumer gets the objects of a producer in order."""
    lines = run("""
        import drover

        def produce(line, name):
            for number in range(2000):
                line.put((name, number))

        def consume(line, results):
            results.put(list(iter(line.get, None)))

        line, results = drover.Queue(50), drover.Queue()
        producers = [drover.Process(target=produce, args=(line, name)) for name in range(3)]
        consumers = [drover.Process(target=consume, args=(line, results)) for _ in range(2)]
        for process in producers + consumers:
            process.start()
        for process in producers:
            process.join()
        for _ in consumers:
            line.put(None)
        parts = [results.get() for _ in consumers]
        for process in consumers:
            process.join()
        whole = sorted(thing for part in parts for thing in part)
        assert whole == [(name, number) for name in range(3) for number in range(2000)], len(whole)
        for part in parts:
            for name in range(3):
                own = [number for who, number in part if who == name]
                assert own == sorted(own)
        print("all", {process.exitcode for process in producers + consumers})
    """)
    assert lines == ["all {0}"]


def test_objects_of_a_child_are_there_after_its_exit() -> None:
    """Even more than fit into the ring: the child passes them on before it exits."""
    lines = run("""
        import drover

        def produce(line):
            for number in range(10_000):
                line.put(number)

        line = drover.Queue()
        child = drover.Process(target=produce, args=(line,))
        child.start()
        print([line.get() for _ in range(10_000)] == list(range(10_000)))
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["True", "0"]


@pytest.mark.parametrize("first", ["pass", "os.kill(_session.current().keeper_pid, signal.SIGKILL)"])
def test_program_with_a_full_queue_exits(first: str) -> None:
    """It does not wait for consumers that cannot exist, nor for a keeper that was killed."""
    lines = run(f"""
        import os, signal
        import drover
        from drover import _session

        line = drover.Queue()
        for number in range(10_000):
            line.put(number)
        {first}
        print("end")
    """)
    assert "end" in lines


def test_put_into_a_full_queue_without_consumers_raises() -> None:
    """PeerLost without a timeout; with one it waits that long and raises Full."""
    lines = run("""
        import queue, time
        import drover

        line = drover.Queue(1)
        child = drover.Process(target=line.put, args=(1,))
        child.start()
        child.join()
        begin = time.monotonic()
        try:
            line.put(2, timeout=0.2)
        except queue.Full:
            print("Full", time.monotonic() - begin >= 0.2)
        try:
            line.put(2)
        except drover.PeerLost:
            print("PeerLost")
        print(line.get())
    """)
    assert lines == ["Full True", "PeerLost", "1"]


def test_timeout_of_a_large_put_covers_memory_and_slot_together() -> None:
    """Waiting for memory uses up most of the time, so little is left to wait for a slot."""
    lines = run("""
        import threading
        import time
        from drover import _core, _session

        large = bytes(700_000)

        def make_room():
            global view
            time.sleep(0.7)
            view = None  # frees memory, but no slot
            time.sleep(0.7)
            line.get(0)

        line = _core.Queue(_session.current(), 1, 1_000_000)
        line.put(large, (), 0)
        view = line.get(0)
        line.put(b"", (), 0)
        other = threading.Thread(target=make_room)
        other.start()
        print(line.put(large, (), 1.0))
        other.join()
        print(line.put(large, (), 0))
    """)
    assert lines == ["PutResult.timed_out", "PutResult.put"]


def test_killed_producers_and_consumers_do_not_disturb_others() -> None:
    """The others do not hang, and nothing that they put is lost or duplicated."""
    lines = run("""
        import time
        import drover

        def produce_for_ever(line):
            number = 0
            while True:
                line.put(("doomed", number))
                number += 1

        def consume_for_ever(line):
            while True:
                line.get()

        def produce(line):
            for number in range(1000):
                line.put(("own", number))

        line = drover.Queue(20)
        for _ in range(5):
            doomed = [drover.Process(target=target, args=(line,)) for target in (produce_for_ever, consume_for_ever)]
            for process in doomed:
                process.start()
            time.sleep(0.3)
            for process in doomed:
                process.kill()
            for process in doomed:
                process.join()
            assert [process.exitcode for process in doomed] == [-9, -9]
        healthy = drover.Process(target=produce, args=(line,))
        healthy.start()
        own = []
        while len(own) < 1000:
            who, number = line.get()
            if who == "own":
                own.append(number)
        assert own == list(range(1000))
        healthy.join()
        print(healthy.exitcode, line.qsize())
    """)
    assert lines == ["0 0"]


def test_get_raises_when_the_last_producer_is_killed() -> None:
    """Instead of waiting forever; with a timeout it waits that long."""
    lines = run("""
        import os, queue, signal
        import drover

        def produce(line):
            line.put("last words")
            os.kill(os.getpid(), signal.SIGKILL)

        line = drover.Queue()
        child = drover.Process(target=produce, args=(line,))
        child.start()
        print(line.get())
        try:
            line.get()
        except drover.PeerLost as error:
            print("PeerLost", "every other process" in str(error))
        try:
            line.get(timeout=0.1)
        except queue.Empty:
            print("Empty")
        child.join()
        line.put("still good")
        print(line.get())
    """)
    assert lines == ["last words", "PeerLost True", "Empty", "still good"]


def test_queue_can_be_sent_through_a_queue() -> None:
    """As a handle, which the receiver opens."""
    lines = run("""
        import drover

        def answer(requests):
            reply, number = requests.get()
            reply.put(number + 1)

        requests = drover.Queue()
        child = drover.Process(target=answer, args=(requests,))
        child.start()
        reply = drover.Queue()
        requests.put((reply, 41))
        print(reply.get(timeout=60))
        child.join()
    """)
    assert lines == ["42"]


def test_queue_can_be_waited_for_together_with_processes() -> None:
    """By its descriptor, which multiprocessing.connection.wait, selectors and event loops accept."""
    lines = run("""
        import drover
        from drover.connection import wait

        def produce(line):
            line.put("ready")

        line = drover.Queue()
        child = drover.Process(target=produce, args=(line,))
        assert wait([line], 0.05) == []
        child.start()
        assert wait([line], 60) == [line]
        print(line.get())
        assert wait([child.sentinel], 60) == [child.sentinel]
        child.join()
    """)
    assert lines == ["ready"]


def test_interrupt_ends_a_waiting_get() -> None:
    """With KeyboardInterrupt; the program goes on."""
    with Program("""
        import drover
        line = drover.Queue()
        try:
            print("waiting")
            line.get()
        except KeyboardInterrupt:
            print("interrupted")
        line.put(1)
        print(line.get())
    """) as program:
        program.wait_for("waiting")
        program.signal(2)
        assert program.wait() == 0, program.output
        assert program.lines() == ["waiting", "interrupted", "1"]


def test_reader_works_beyond_1023_descriptors() -> None:
    """For programs with many open files."""
    lines = run("""
        import os, resource
        import drover

        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        queue = drover.Queue()
        files = [os.dup(0) for _ in range(1100)]
        print(queue._reader.fileno() > 1023, queue._reader.poll(0.01))
        queue.put("a")
        print(queue._reader.poll(30), queue.get())
    """)
    assert lines == ["True False", "True a"]


def test_queue_closed_for_all_processes_raises() -> None:
    """A C++ program can close a queue so; put and get raise instead of losing objects."""
    lines = run("""
        import drover

        for queue in (drover.Queue(), drover.Queue(3)):
            queue._core.close()
            for call in (lambda: queue.put(1), lambda: queue.get(timeout=30)):
                try:
                    call()
                except drover.PeerLost as error:
                    print("closed the queue for all processes" in str(error))
    """)
    assert lines == ["True"] * 4


def test_closed_writer_refuses_puts_while_gets_go_on() -> None:
    """Workers of multiprocessing's own pools close the end that they do not use."""
    line = drover.SimpleQueue()
    line.put(1)
    assert not line._writer.closed
    line._writer.close()
    assert line._writer.closed
    with pytest.raises(OSError, match="handle is closed"):
        line.put(2)
    assert line.get() == 1
    assert line.empty()


def test_reader_is_started_once_by_threads_that_ask_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readers would each take messages that the other waits for."""

    class Slow(_queue_reader._Taken):
        def __init__(self) -> None:
            time.sleep(0.05)  # long enough for the other threads to come
            super().__init__()

    monkeypatch.setattr(_queue_reader, "_Taken", Slow)
    numbers = drover.Queue()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        descriptors = {each.result() for each in [threads.submit(numbers._reader.fileno) for _ in range(4)]}
    assert len(descriptors) == 1
    for number in range(100):
        numbers.put(number)
    assert [numbers.get(timeout=30) for _ in range(100)] == list(range(100))


def test_unused_queue_takes_little_memory() -> None:
    """Its slots become resident as they are used."""
    lines = run("""
        import drover
        from pathlib import Path

        def shared_kib():
            status = Path("/proc/self/status").read_text()
            return int(status.partition("RssShmem:")[2].split()[0])

        first = drover.Queue()
        before = shared_kib()
        queues = [drover.Queue() for _ in range(32)]
        print((shared_kib() - before) / len(queues) <= 64)
        for queue in queues:
            for i in range(3000):
                queue.put(i)
        print((shared_kib() - before) / len(queues) > 64)
        print(all(queue.get() == i for queue in queues for i in range(3000)))
    """)
    assert lines == ["True", "True", "True"]


def test_full_unbounded_queue_gives_its_reader_a_moment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a thread keeps the messages, as it does at once for a put that must not wait."""
    readers_turns = iter([lambda: [numbers.get() for _ in range(10)], lambda: pytest.fail("waited too often")])
    numbers: drover.Queue[int] = drover.Queue()
    for i in range(4096):
        numbers.put(i)
    monkeypatch.setattr(_queues.time, "sleep", lambda _: next(readers_turns)())
    monkeypatch.setattr(_queues.time, "monotonic", lambda: 100.0)
    for i in range(4096, 4106):
        numbers.put(i)
    assert len(numbers._feeder) == 0
    numbers.put(4106)
    numbers.put_nowait(4107)
    assert len(numbers._feeder) == 2
    monkeypatch.undo()
    assert [numbers.get(timeout=60) for _ in range(4098)] == list(range(10, 4108))
