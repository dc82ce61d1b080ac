"""Objects as bytes and tensors: what comes back is what went in, whatever happens in the middle."""

from __future__ import annotations

import collections
import copyreg
import gc
import pickle
import random
import subprocess
import sys
import threading
import types
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any

import drover
import pytest
from drover import _core, _objects, _session

PLAIN_KEYS = ["a", 1, 2.5, None, True, b"k"]


def round_trip(thing: Any) -> Any:
    """Give it as another process would get it."""
    return _objects.loads(*_objects.dumps(thing))


def make(random_: random.Random, depth: int) -> Any:
    """Give some object."""
    leaves = [None, True, 7, -(2**70), 1.5, 2j, "text", b"bytes", bytearray(b"x" * 20_000), range(3), b"y" * 20_000]
    kinds = [list, tuple, dict, set, "leaf"] if depth else ["leaf"]
    kind = random_.choice(kinds)
    if kind == "leaf":
        return random_.choice(leaves)
    if kind is set:
        return {random_.choice(PLAIN_KEYS) for _ in range(3)}
    if kind is dict:
        return {key: make(random_, depth - 1) for key in random_.sample(PLAIN_KEYS, 3)}
    return kind(make(random_, depth - 1) for _ in range(random_.randrange(20)))


@pytest.mark.parametrize("seed", range(40))
def test_random_objects_come_back(seed: int) -> None:
    """Nested, small and large."""
    thing = make(random.Random(seed), 4)
    back = round_trip(thing)
    assert back == thing
    assert type(back) is type(thing)


def test_tensors_come_back_in_their_places() -> None:
    """Beside large buffers, and the same one twice."""
    tensor = _core.empty(_session.current(), "float32", [5], "cpu", True)
    memoryview(tensor)[2] = 3.0
    large = pickle.PickleBuffer(bytearray(b"z" * 50_000))
    one, other, again = round_trip([tensor, large, tensor])
    assert memoryview(one)[2] == 3.0
    assert one is again
    assert bytes(other) == b"z" * 50_000


def test_tensor_without_a_message_is_refused() -> None:
    """Plain pickle has nothing that could hold the memory."""
    tensor = _core.empty(_session.current(), "uint8", [5])
    with pytest.raises(pickle.PicklingError, match="queues and tasks"):
        _objects.carry(tensor)
    with pytest.raises(pickle.UnpicklingError, match="outside of its message"):
        _objects.carried(0)


class Nested:
    """Pickles another object while it is pickled, and reads it while it is read."""

    def __init__(self, inside: Any) -> None:
        """Have it."""
        self.inside = inside

    def __getstate__(self) -> Any:
        """Give it pickled."""
        payload, tensors = _objects.dumps(self.inside)
        return payload, list(tensors)

    def __setstate__(self, state: Any) -> None:
        """Read it."""
        self.inside = _objects.loads(*state)


def test_pickle_within_a_pickle() -> None:
    """Each has its own buffers and tensors."""
    buffers = [bytearray([number]) * 30_000 for number in range(4)]
    thing = [
        pickle.PickleBuffer(buffers[0]),
        Nested([pickle.PickleBuffer(buffers[1]), Nested(buffers[2])]),
        buffers[3],
    ]
    back = round_trip(thing)
    assert bytes(back[0]) == buffers[0]
    assert bytes(back[1].inside[0]) == buffers[1]
    assert back[1].inside[1].inside == buffers[2]
    assert back[2] == buffers[3]


class Refusing:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        """Say so."""
        raise RuntimeError("not me")


def test_error_in_the_middle_leaves_nothing_to_the_next() -> None:
    """Neither bytes nor buffers of the object that failed."""
    buffer = pickle.PickleBuffer(bytearray(50_000))
    before = _objects.dumps(["small", {1}])
    for _ in range(3):
        with pytest.raises(RuntimeError, match="not me"):
            _objects.dumps([buffer, _core.empty(_session.current(), "uint8", [3]), {1}, Refusing()])
        assert _objects.dumps(["small", {1}]) == before
        with pytest.raises(RuntimeError, match="not me"):
            _objects.dumps(Nested([buffer, Refusing()]))
        assert round_trip(["small", {1}]) == ["small", {1}]


def test_what_cannot_be_sent_raises_where_it_is_put() -> None:
    """With the reason, and the queue goes on."""
    line = drover.Queue()
    with pytest.raises(TypeError, match="pickle"):
        line.put([1, threading.Lock()])
    line.put("next")
    assert line.get() == "next"


def test_many_threads_at_once() -> None:
    """No thread sees what another pickles."""
    wrong: list[Any] = []

    def work(seed: int) -> None:
        random_ = random.Random(seed)
        for _ in range(150):
            thing = [make(random_, 3), pickle.PickleBuffer(bytearray([seed]) * 20_000)]
            back = round_trip(thing)
            if back[0] != thing[0] or bytes(back[1]) != bytes(thing[1]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("count", [31, 32, 33, 100])
@pytest.mark.parametrize("tensors", [0, 1, 20])
def test_more_buffers_than_a_message_carries(count: int, tensors: int) -> None:
    """Through a queue; all come, in order."""
    buffers = [bytearray([number]) * (16_384 + number) for number in range(count)]
    own = [_core.empty(_session.current(), "uint8", [number + 1]) for number in range(tensors)]
    line = drover.Queue()
    line.put([own, [pickle.PickleBuffer(buffer) for buffer in buffers]])
    got_own, got = line.get()
    assert [tensor.nbytes for tensor in got_own] == [tensor.nbytes for tensor in own]
    assert [bytes(buffer) for buffer in got] == buffers


def test_more_tensors_than_a_message_carries_are_refused() -> None:
    """At once, and with what to do."""
    many = [_core.empty(_session.current(), "uint8", [1]) for _ in range(33)]
    with pytest.raises(drover.LimitReached, match="33 arrays"):
        _objects.dumps(many)
    assert len(round_trip(many[:32])) == 32


class Registered:
    """Pickled as somebody registered it."""


def test_reducers_that_are_registered_later_are_used() -> None:
    """With copyreg and with multiprocessing."""
    round_trip({1})
    try:
        copyreg.pickle(Registered, lambda _: (str, ("by copyreg",)))
        assert round_trip([Registered()]) == ["by copyreg"]
        ForkingPickler.register(Registered, lambda _: (str, ("by multiprocessing",)))
        assert round_trip([Registered()]) == ["by multiprocessing"]
    finally:
        copyreg.dispatch_table.pop(Registered, None)
        ForkingPickler._extra_reducers.pop(Registered, None)
    assert type(round_trip([Registered()])[0]) is Registered


def test_functions_without_a_name_go_by_value() -> None:
    """With what they close over, arrays and classes of their own included."""
    buffer = bytearray(b"q" * 30_000)

    class Own(collections.OrderedDict):
        """A class that nobody can import."""

    def inner(number: int) -> Any:
        return Own(sum=number + len(buffer))

    assert dict(round_trip(inner)(2)) == {"sum": 30_002}


def test_library_of_an_unknown_version_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arrays go their own way, which is said once."""
    library = types.ModuleType("numba.cuda")
    library.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(_objects._awaited, "numba.cuda", "drover._device_arrays")
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))
    monkeypatch.setitem(sys.modules, "numba.cuda", library)
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.devicearray", None)  # as it is where numba is not installed
    monkeypatch.setattr(_objects._tables, "_seen", ())  # numba may have been there before
    with pytest.warns(UserWarning, match=r"numba.cuda go its own way"):
        assert round_trip([{1}]) == [{1}]
    assert round_trip([{2}]) == [{2}]


@pytest.mark.parametrize("error", [ValueError, TypeError], ids=["raised", "tried-again-by-value"])
def test_what_could_not_be_sent_is_not_kept(error: type[Exception]) -> None:
    """Until garbage is collected: its memory may be another process's, who waits for it."""

    class Bad:
        def __reduce__(self) -> Any:
            raise error

    array = drover.zeros(100_000)
    seen = weakref.ref(array)
    gc.disable()
    try:
        with pytest.raises(error):
            _objects.dumps([array, {"x": Bad()}])
        del array
        assert seen() is None
    finally:
        gc.enable()


def test_libraries_are_not_imported_for_those_who_do_not_use_them() -> None:
    """Neither numpy nor torch nor cloudpickle, by sending something."""
    code = """
import sys
import drover
line = drover.Queue()
line.put([{1}, {"a": bytearray(100_000)}])
line.get()
print([name for name in ("numpy", "torch", "cupy", "jax", "numba", "cloudpickle") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


class Lone:
    """Something that a tensor may say all of."""


def test_objects_sent_alone_need_no_pickle_if_a_tensor_says_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only alone, and only if there is such a tensor; whoever registers the type has the last word."""
    tensor = _core.copied(_session.current(), b"bytes")
    given: list[Any] = [tensor]
    monkeypatch.setitem(_objects.alone, Lone, lambda thing: given[0])
    payload, tensors = _objects.dumps(Lone())
    assert (payload, tensors[0] is tensor) == (_objects._ALONE_TORCH, True)
    assert _objects.dumps([Lone()])[0] != _objects._ALONE_TORCH
    given[0] = None
    assert _objects.dumps(Lone())[0] != _objects._ALONE_TORCH
    given[0] = tensor
    monkeypatch.setitem(_objects.reducers, Lone, lambda thing: (Lone, ()))
    drover.register_array(Lone, lambda array: array)
    assert Lone not in _objects.alone


def test_sending_alone_forgets_what_the_last_object_was_to_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an object that could not be sent would undo another's."""
    called: list[str] = []
    _objects._local.state.last = [lambda: called.append("undone")]
    monkeypatch.setitem(_objects.alone, Lone, lambda thing: _core.copied(_session.current(), b"bytes"))
    thing = Lone()
    _objects.dumps(thing)
    _objects.unsent(thing)
    assert called == []
