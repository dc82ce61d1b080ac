"""What executors and pools do when a task ends its worker, exits or raises, wherever on its way that happens."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.pool import MaybeEncodingError, RemoteTraceback
from pathlib import Path
from typing import Any

import drover
import pytest
from programs import run

# Ends a wait that hangs; not a bound on how long a test may take.
_LIMIT_S = 120.0
FOLDER = str(Path(__file__).parent)


class OwnError(Exception):
    """An error of the program."""


# What ends a worker, with how the error describes it; and what is raised.
LOST = {"segfault": "SIGSEGV", "_exit": "exited with status 0", "SIGKILL": "SIGKILL"}
RAISED = {"raise": OwnError, "sys.exit": SystemExit, "interrupt": KeyboardInterrupt}


def end(way: str) -> None:
    """End in this way."""
    if way == "segfault":
        ctypes.string_at(0)
    if way == "_exit":
        os._exit(0)
    if way == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "sys.exit":
        sys.exit(3)
    raise RAISED[way]("on purpose")


class Pickled:
    """Ends the process that pickles it."""

    def __init__(self, way: str) -> None:
        """Keep the way."""
        self.way = way

    def __reduce__(self) -> Any:
        """End."""
        end(self.way)


class Unpickled:
    """Ends the process that unpickles it."""

    def __init__(self, way: str) -> None:
        """Keep the way."""
        self.way = way

    def __reduce__(self) -> Any:
        """Be replaced by the end."""
        return end, (self.way,)

    def __call__(self) -> None:
        """Be a function, too."""


class PickledError(Pickled, Exception):
    """The same, raised."""


class UnpickledError(Unpickled, Exception):
    """The same, raised."""


class Destroyed:
    """Ends the worker that destroys it."""

    def __init__(self, way: str, program: int = 0) -> None:
        """Keep the way, and the process that is spared."""
        self.way, self.program = way, program or os.getpid()

    def __reduce__(self) -> Any:
        """Name the program."""
        return Destroyed, (self.way, self.program)

    def __del__(self) -> None:
        """End."""
        if os.getpid() != self.program:
            end(self.way)


def make(kind: Callable[..., Any], *args: Any) -> Any:
    """Return an object."""
    return kind(*args)


def run_call(call: Call) -> Any:
    """Call a function."""
    function, args = call
    return function(*args)


def throw(kind: type[BaseException], way: str) -> None:
    """Raise an object."""
    raise kind(way)


Call = tuple[Callable[..., Any], tuple[Any, ...]]
PLACES: dict[str, Callable[[str], Call]] = {
    "argument pickled": lambda way: (id, (Pickled(way),)),
    "argument unpickled": lambda way: (id, (Unpickled(way),)),
    "argument destroyed": lambda way: (id, (Destroyed(way),)),
    "function unpickled": lambda way: (Unpickled(way), ()),
    "call": lambda way: (end, (way,)),
    "result pickled": lambda way: (make, (Pickled, way)),
    "result unpickled": lambda way: (make, (Unpickled, way)),
    "result destroyed": lambda way: (make, (Destroyed, way, os.getpid())),
    "exception pickled": lambda way: (throw, (PickledError, way)),
    "exception unpickled": lambda way: (throw, (UnpickledError, way)),
}
# Lost is not tried where the program itself would end; what a destructor raises, Python ignores.
IN_PROGRAM = ("argument pickled", "result unpickled")
CELLS = [
    (place, way)
    for place in PLACES
    for way in ([] if place in IN_PROGRAM else list(LOST)) + ([] if "destroyed" in place else list(RAISED))
]
GOOD: Call = (abs, (-7,))
BRIEF = [(place, way) for place, way in CELLS if way in ("SIGKILL", "sys.exit")]
# One for each process and thread that an error may come from.
SOURCES = [
    ("argument pickled", "sys.exit"),
    ("call", "SIGKILL"),
    ("result pickled", "sys.exit"),
    ("result unpickled", "sys.exit"),
    ("exception pickled", "sys.exit"),
]


@pytest.fixture(scope="module")
def executor() -> Iterator[drover.Executor]:
    """An executor that all crashes of these tests happen to."""
    with drover.Executor(2, output="discarded") as made:
        yield made
        assert made.submit(abs, -1).result(_LIMIT_S) == 1


@pytest.fixture(scope="module")
def pool() -> Iterator[drover.Pool]:
    """The same, as a pool."""
    with drover.Pool(2, output="discarded") as made:
        yield made
        assert made.apply_async(abs, (-1,)).get(_LIMIT_S) == 1


def check(error: BaseException, place: str, way: str, of_pool: bool = False) -> None:
    """Check that the error of a call says what has happened."""
    if way in LOST:
        assert isinstance(error, drover.PeerLost)
        assert isinstance(error, BrokenProcessPool) is not of_pool
        assert LOST[way] in str(error)
        return
    is_encoding = "exception" in place or (place, way) == ("result pickled", "raise")
    assert type(error) is (MaybeEncodingError if of_pool and is_encoding else RAISED[way])
    if place in IN_PROGRAM:
        assert error.__cause__ is None
    else:
        assert isinstance(error.__cause__, RemoteTraceback)
        assert type(error) is MaybeEncodingError or "in end" in str(error.__cause__)


def error_of(call: Callable[[], Any]) -> BaseException:
    """Return what a call raises."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011 (the caller looks at it)
        call()
    return raised.value


@pytest.mark.parametrize(("place", "way"), CELLS)
def test_submitted_call_has_the_error_and_others_have_results(
    executor: drover.Executor, place: str, way: str
) -> None:
    """Before it, after it, and when it is over."""
    function, args = PLACES[place](way)
    before = [executor.submit(abs, -x) for x in range(3)]
    error = error_of(lambda: executor.submit(function, *args).result(_LIMIT_S))
    after = [executor.submit(abs, -x) for x in range(3)]
    check(error, place, way)
    assert [future.result(_LIMIT_S) for future in before + after] == [0, 1, 2] * 2


@pytest.mark.parametrize(("place", "way"), SOURCES)
def test_call_that_a_callback_submits(executor: drover.Executor, place: str, way: str) -> None:
    """On the thread that receives results: the same error."""
    made: futures.Future[Any] = futures.Future()
    function, args = PLACES[place](way)

    def submit(_: Any) -> None:
        try:
            made.set_result(executor.submit(function, *args))
        except BaseException as error:
            made.set_exception(error)

    executor.submit(abs, -1).add_done_callback(submit)
    check(error_of(lambda: made.result(_LIMIT_S).result(_LIMIT_S)), place, way)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("place", "way"), SOURCES)
def test_map_of_an_executor(executor: drover.Executor, place: str, way: str, size: int) -> None:
    """Returns the results before the bad one, then raises."""
    calls = [GOOD] * 4 + [PLACES[place](way)] + [GOOD] * 4
    found = []

    def take() -> None:
        for result in executor.map(run_call, calls, chunksize=size):
            found.append(result)

    check(error_of(take), place, way)
    assert found == ([] if place == "argument pickled" else [7] * 4)


def with_callbacks(pool: drover.Pool, call: Call) -> None:
    """Raise what an error callback got, which `get` raises too."""
    got: list[Any] = []
    result = pool.apply_async(*call, callback=got.append, error_callback=got.append)
    error = error_of(lambda: result.get(_LIMIT_S))
    assert got == [error]
    raise error


def unordered(pool: drover.Pool, call: Call) -> None:
    """Raise the one error of several calls, whose other results all come."""
    results = pool.imap_unordered(run_call, [GOOD, GOOD, call, GOOD])
    found, errors = [], []
    for _ in range(4):
        try:
            found.append(results.next(_LIMIT_S))
        except BaseException as error:
            errors.append(error)
    assert found == [7] * 3
    raise errors[0]


OF_POOL: dict[str, Callable[[drover.Pool, Call], Any]] = {
    "get": lambda pool, call: pool.apply_async(*call).get(_LIMIT_S),
    "callbacks": with_callbacks,
    "map": lambda pool, call: pool.map_async(run_call, [GOOD, call, GOOD], 1).get(_LIMIT_S),
    "chunks": lambda pool, call: pool.map_async(run_call, [GOOD, call, GOOD], 2).get(_LIMIT_S),
    "unordered": unordered,
}


OF_POOL_CELLS = [(how, *cell) for how in OF_POOL for cell in (BRIEF if how == "get" else SOURCES)]


@pytest.mark.parametrize(("how", "place", "way"), OF_POOL_CELLS)
def test_call_of_a_pool_has_the_error(pool: drover.Pool, how: str, place: str, way: str) -> None:
    """However it is made, and a later call has its result."""
    check(error_of(lambda: OF_POOL[how](pool, PLACES[place](way))), place, way, of_pool=True)
    assert pool.apply_async(*GOOD).get(_LIMIT_S) == 7


def hold(gate: Any, value: Any) -> Any:
    """Wait, then return a value."""
    assert gate.wait(_LIMIT_S)
    return value


def test_busy_worker_and_waiting_calls_are_unaffected(executor: drover.Executor) -> None:
    """Crashes between calls that wait take none of them along, though one worker is busy all the time."""
    gate = drover.Event()
    busy = executor.submit(hold, gate, "busy")
    good, bad = [], []
    for way in LOST:
        good += [executor.submit(abs, -x) for x in range(50)]
        bad.append((way, executor.submit(end, way)))
    good += [executor.submit(abs, -x) for x in range(50)]
    for way, future in bad:
        check(error_of(lambda made=future: made.result(_LIMIT_S)), "call", way)  # type: ignore[misc]
    assert [future.result(_LIMIT_S) for future in good] == list(range(50)) * 4
    assert not busy.done()
    gate.set()
    assert busy.result(_LIMIT_S) == "busy"


def kill(pids: list[int]) -> str:
    """Kill processes."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return "survived"


def pids_of(executor: drover.Executor) -> list[int]:
    """Return the processes of the workers, once all have started."""
    executor._pool.wait_ready()
    return [worker["pid"] for worker in executor.workers()]


def test_idle_workers_that_are_killed_are_replaced(executor: drover.Executor) -> None:
    """The next calls, made at once, find others."""
    pids = pids_of(executor)
    kill(pids)
    assert [executor.submit(abs, -x).result(_LIMIT_S) for x in range(4)] == [0, 1, 2, 3]
    assert not set(pids) & set(pids_of(executor))


@pytest.mark.parametrize("workers", [1, 5])
def test_workers_that_kill_each_other(workers: int) -> None:
    """Each call ends, by its result or as lost; and the executor goes on, and shuts down after another such blow."""
    with drover.Executor(workers, output="discarded") as executor:
        calls = [executor.submit(kill, [pid]) for pid in reversed(pids_of(executor))]
        for future in calls:
            error = future.exception(_LIMIT_S)
            assert isinstance(error, (drover.PeerLost, ProcessLookupError)) or future.result() == "survived"
        assert [executor.submit(abs, -x).result(_LIMIT_S) for x in range(9)] == list(range(9))
        kill(pids_of(executor))


def test_many_arguments_that_cannot_be_pickled_hold_up_nothing(executor: drover.Executor) -> None:
    """They raise at once, between calls that run."""
    good = []
    for x in range(100):
        error_of(lambda: executor.submit(id, Pickled("raise")))
        good.append(executor.submit(abs, -x))
    assert [future.result(_LIMIT_S) for future in good] == list(range(100))


def outcome_of(future: futures.Future[Any]) -> Any:
    """Return how a call has ended."""
    if future.cancelled():
        return "cancelled"
    error = future.exception(_LIMIT_S)
    return future.result() if error is None else "lost" if isinstance(error, drover.PeerLost) else repr(error)


def numbers(most: int) -> Iterator[int]:
    """Yield some numbers, then raise."""
    yield from range(most)
    end("raise")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_items_that_raise(executor: drover.Executor, pool: drover.Pool, size: int) -> None:
    """Where they are taken: in the call, or, for an iterator, after the results before them."""
    for call in (
        lambda: executor.map(abs, numbers(7), chunksize=size),
        lambda: pool.map(abs, numbers(7), size),
    ):
        assert type(error_of(call)) is OwnError
    results = pool.imap(abs, numbers(7), size)
    found = [results.next(_LIMIT_S) for _ in range(7 // size * size)]
    assert type(error_of(results.next)) is OwnError
    assert found == list(range(7 // size * size))
    assert executor.submit(run_call, GOOD).result(_LIMIT_S) == 7


@pytest.mark.parametrize("way", RAISED)
def test_callback_that_raises_ends_no_thread(
    executor: drover.Executor, pool: drover.Pool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is there, and later callbacks run."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    begun = drover.Event()
    first = executor.submit(hold, begun, 1)
    first.add_done_callback(lambda _: end(way))
    begun.set()
    assert first.result(_LIMIT_S) == 1
    assert pool.apply_async(*GOOD, callback=lambda _: end(way)).get(_LIMIT_S) == 7
    called = threading.Event()
    executor.submit(abs, -1).add_done_callback(lambda _: called.set())
    assert called.wait(_LIMIT_S)
    test = threading.Event()
    pool.apply_async(*GOOD, callback=lambda _: test.set())
    assert test.wait(_LIMIT_S)


def test_shutdown_and_exit_while_workers_crash() -> None:
    """However an executor ends, its calls end too, and no process is left."""
    lines = run(f"""
        import gc, sys
        sys.path.insert(0, {FOLDER!r})
        from test_executor_crashes import end, outcome_of
        import drover

        def crash():
            executor = drover.Executor(2, output="discarded")
            calls = [executor.submit(end, way) for way in ("SIGKILL", "_exit", "segfault", "SIGKILL")]
            return executor, calls + [executor.submit(abs, -x) for x in range(4)]

        if __name__ == "__main__":
            for wait, cancels in ((True, False), (False, False), (True, True), (False, True)):
                executor, calls = crash()
                executor.shutdown(wait=wait, cancel_futures=cancels)
                print(*(outcome_of(call) for call in calls))
            executor, calls = crash()
            del executor
            gc.collect()
            print(*(outcome_of(call) for call in calls))
            executor, calls = crash()
            calls[-1].add_done_callback(lambda call: print("at exit", outcome_of(call), flush=True))
    """)
    ended = [line for line in lines if "drover[" not in line]
    finished, cancelled = "lost lost lost lost 0 1 2 3", "lost lost" + " cancelled" * 6
    assert ended == [finished, finished, cancelled, cancelled, finished, "at exit 3"]
