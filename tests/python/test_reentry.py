"""Messages stay whole if another one is sent or received in the middle: by reducers, finalizers, signal handlers."""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
from typing import Any

import drover
import numpy as np
import pytest
from drover import _core, _descriptors, _objects, _session

SIZE = 50_000


def round_trip(thing: Any) -> Any:
    """Return the object as another process would receive it."""
    return _objects.loads(*_objects.dumps(thing))


def check_other() -> None:
    """Send and receive another message with an array, a tensor and a buffer."""
    tensor = _core.copied(_session.current(), b"other")
    back = round_trip([np.full(SIZE, 7), tensor, bytearray(b"o" * SIZE)])
    assert (back[0] == 7).all()
    assert bytes(back[1]) == b"other"
    assert back[2] == b"o" * SIZE


class Sending:
    """Sends another message while it is pickled."""

    def __reduce__(self) -> Any:
        """Send."""
        check_other()
        return int, (5,)


class Receiving:
    """Sends and receives another message while it is received."""

    def __setstate__(self, state: Any) -> None:
        """Send and receive."""
        check_other()
        self.array = state["array"]


class Finalized:
    """Sends another message when it is collected as garbage."""

    def __init__(self, done: list[bool]) -> None:
        """Create a reference cycle."""
        self._cycle, self._done = self, done

    def __del__(self) -> None:
        """Send."""
        check_other()
        self._done.append(True)


def check_around(middle: Any) -> Any:
    """Send an object between arrays and tensors, which must arrive as they are."""
    tensor = _core.copied(_session.current(), b"whole")
    back = round_trip([np.full(SIZE, 1), tensor, middle, np.full(SIZE, 2), tensor, bytearray(b"w" * SIZE)])
    assert (back[0] == 1).all()
    assert (back[3] == 2).all()
    assert bytes(back[1]) == bytes(back[4]) == b"whole"
    assert back[5] == b"w" * SIZE
    return back[2]


def test_reducer_may_send() -> None:
    """Also in an object that is pickled by value, in a second attempt."""
    assert check_around(Sending()) == 5
    assert check_around([Sending(), lambda: 6])[1]() == 6


def test_state_may_send_and_receive() -> None:
    """The rest of the message is read as before."""
    receiving = Receiving()
    receiving.__dict__["array"] = np.full(SIZE, 3)
    assert (check_around(receiving).array == 3).all()


@pytest.mark.parametrize("where", ["current", "pack"])
def test_finalizer_may_send_between_pickling_and_import(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage collection may begin anywhere, also when the arrays of a message have been found but not imported."""
    done: list[bool] = []
    original = _session.current

    def collecting() -> Any:
        if not collecting.is_busy:
            collecting.is_busy = True
            Finalized(done)
            gc.collect()
            collecting.is_busy = False
        return original()

    collecting.is_busy = False
    if where == "current":
        monkeypatch.setattr(_session, "current", collecting)
    else:
        monkeypatch.setattr(_objects, "_with_tensors", _collecting_first(done, _objects._with_tensors))
    round_trip({1})  # leaves an idle pickler, which a message in the middle would use
    check_around(None)
    assert done


def _collecting_first(done: list[bool], original: Any) -> Any:
    def collecting(*arguments: Any) -> Any:
        if not collecting.is_busy:
            collecting.is_busy = True
            Finalized(done)
            gc.collect()
            collecting.is_busy = False
        return original(*arguments)

    collecting.is_busy = False
    return collecting


def test_signal_handler_may_send_while_a_put_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the put fails then, its own side effects are undone, not those of the handler's message."""
    withdrawn: list[str] = []

    class Offered:
        def __init__(self, name: str) -> None:
            self.name = name

        def __reduce__(self) -> Any:
            _objects.if_discarded(lambda: withdrawn.append(self.name))
            return str, (self.name,)

    full, other = drover.Queue(1), drover.Queue()
    full.put(0)

    def handle(*_: Any) -> None:
        other.put([Offered("handler"), {1}])

    before = signal.signal(signal.SIGUSR1, handle)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(queue.Full):
            full.put([Offered("put"), {1}], timeout=0.5)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert withdrawn == ["put"]
    assert other.get()[0] == "handler"


def test_message_that_was_not_sent_does_not_undo_another() -> None:
    """Each payload has its own side effects."""
    undone: list[int] = []

    class Offered:
        def __init__(self, number: int) -> None:
            self.number = number

        def __reduce__(self) -> Any:
            _objects.if_discarded(lambda: undone.append(self.number))
            return int, (self.number,)

    first, second = (_objects.dumps([Offered(number)])[0] for number in (1, 2))
    _objects.unsent(first)
    _objects.unsent(_objects.dumps([{1}])[0])
    assert undone == [1]
    assert _objects.loads(second) == [2]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_interrupted_pickle_leaves_no_state(kind: type[BaseException]) -> None:
    """Neither the mode nor the arrays of the message that failed apply to the next."""

    class Failing:
        def __reduce__(self) -> Any:
            raise kind

    for _ in range(3):
        with pytest.raises(kind):
            _objects.dumps([np.ones(SIZE), Failing()], inline=_objects.ALL_INLINE, by_reference=True)
        state = _objects._local.state
        assert (state.maker, state.by_reference, state.inline, state.undo) == (None, False, _objects.INLINE, [])
        check_other()


def test_offers_of_a_pickle_that_failed_are_withdrawn() -> None:
    """A descriptor that was to travel is closed."""
    read, write = os.pipe()

    class End:
        def __reduce__(self) -> Any:
            return int, (len(str(_descriptors.ticket_for(read))),)

    class Failing:
        def __reduce__(self) -> Any:
            raise RuntimeError

    _objects.dumps([End()])
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError):
        _objects.dumps([End(), Failing()])
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(read)
    os.close(write)


def test_reducers_of_a_library_are_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A thread that sends while another imports the reducers pickles with them too."""
    tmp_path.joinpath("late_library.py").write_text("class Array: pass\n", encoding="utf-8")
    tmp_path.joinpath("late_reducers.py").write_text(
        "import test_reentry, late_library\n"
        "test_reentry.begun.set()\n"
        "assert test_reentry.may_end.wait(60)\n"
        "def reducers(name): return {late_library.Array: lambda array: (str, ('ours',))}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "test_reentry", sys.modules[__name__])
    begun.clear()
    may_end.clear()
    library = __import__("late_library")
    monkeypatch.setattr(_objects, "reducers", dict(_objects.reducers))
    monkeypatch.setitem(_objects._awaited, "late_library", "late_reducers")
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(round_trip([library.Array()]))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.3)  # time enough to pickle with the wrong reducer
    may_end.set()
    for thread in threads:
        thread.join()
    assert results == [["ours"], ["ours"]]
    assert "late_library" not in _objects._awaited


begun, may_end = threading.Event(), threading.Event()


def test_library_that_is_being_imported_is_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its import is done, even if no other module is imported meanwhile."""
    library = type(sys)("slow_library")
    library.__spec__ = type("Spec", (), {"_initializing": True})()
    ours = type(sys)("slow_reducers")
    ours.reducers = lambda name: {Slow: lambda thing: (str, ("ours",))}
    monkeypatch.setattr(_objects, "reducers", dict(_objects.reducers))
    monkeypatch.setitem(sys.modules, "slow_library", library)
    monkeypatch.setitem(sys.modules, "slow_reducers", ours)
    monkeypatch.setitem(_objects._awaited, "slow_library", "slow_reducers")
    assert isinstance(round_trip([Slow()])[0], Slow)
    library.__spec__._initializing = False
    assert round_trip([Slow()]) == ["ours"]


class Slow:
    """An array of a library that is slow to import."""


def test_tensor_is_opened_while_another_message_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one of a device may run code of the program, which may read messages of its own."""
    torch = pytest.importorskip("torch")
    import drover.torch  # noqa: PLC0415 (only where torch is)

    session = _session.current()
    mine = [_core.empty(session, "uint8", [count], "host:0", is_zeroed=True) for count in (1, 2, 3)]
    others = [_core.copied(session, bytes([number]) * 2000) for number in (1, 2, 3)]
    opened: list[Any] = []

    def read_others() -> None:
        _core.set_reading(others)
        opened.append(_core.open_tensor(2))
        _core.set_reading(None)
        others.clear()
        mine.clear()

    monkeypatch.setattr(drover.torch, "initialize", read_others)
    _core.set_reading(mine)
    try:
        got = _core.open_tensor(1)
    finally:
        _core.set_reading(None)
    assert torch.equal(got, torch.zeros(2, dtype=torch.uint8))
    assert torch.equal(opened[0], torch.full((2000,), 3, dtype=torch.uint8))
