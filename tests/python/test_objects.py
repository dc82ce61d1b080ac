"""Objects as bytes and tensors: objects come back equal, also after errors and in nested pickles."""

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
    """Return the object as another process would receive it."""
    return _objects.loads(*_objects.dumps(thing))


def make(random_: random.Random, depth: int) -> Any:
    """Return a random object."""
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
    """Of every kind, nested, small and large."""
    thing = make(random.Random(seed), 4)
    back = round_trip(thing)
    assert back == thing
    assert type(back) is type(thing)


def test_tensors_come_back_in_their_places() -> None:
    """Next to large buffers, and twice in one object."""
    tensor = _core.empty(_session.current(), "float32", [5], "cpu", True)
    memoryview(tensor)[2] = 3.0
    large = pickle.PickleBuffer(bytearray(b"z" * 50_000))
    one, other, again = round_trip([tensor, large, tensor])
    assert memoryview(one)[2] == 3.0
    assert one is again
    assert bytes(other) == b"z" * 50_000


def test_tensor_outside_of_a_message_is_refused() -> None:
    """A pickle alone cannot hold the memory."""
    tensor = _core.empty(_session.current(), "uint8", [5])
    with pytest.raises(pickle.PicklingError, match="drover queue, pipe or task"):
        _objects.reducers[type(tensor)](tensor)
    with pytest.raises(pickle.UnpicklingError, match="outside of its message"):
        _objects.carried(0)


class Nested:
    """Pickles another object while it is pickled, and unpickles it while it is unpickled."""

    def __init__(self, inside: Any) -> None:
        """Wrap an object."""
        self.inside = inside

    def __getstate__(self) -> Any:
        """Pickle the object."""
        payload, tensors = _objects.dumps(self.inside)
        return payload, list(tensors)

    def __setstate__(self, state: Any) -> None:
        """Unpickle the object."""
        self.inside = _objects.loads(*state)


def test_nested_pickles_come_back() -> None:
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
        """Refuse."""
        raise RuntimeError("not me")


def test_failed_pickle_does_not_affect_the_next() -> None:
    """No bytes or buffers of the failed object are left."""
    buffer = pickle.PickleBuffer(bytearray(50_000))
    before = _objects.dumps(["small", {1}])
    for _ in range(3):
        with pytest.raises(RuntimeError, match="not me"):
            _objects.dumps([buffer, _core.empty(_session.current(), "uint8", [3]), {1}, Refusing()])
        assert _objects.dumps(["small", {1}]) == before
        with pytest.raises(RuntimeError, match="not me"):
            _objects.dumps(Nested([buffer, Refusing()]))
        assert round_trip(["small", {1}]) == ["small", {1}]


def test_object_that_cannot_be_sent_raises_in_put() -> None:
    """With the reason; the queue stays usable."""
    line = drover.Queue()
    with pytest.raises(TypeError, match="pickle"):
        line.put([1, threading.Lock()])
    line.put("next")
    assert line.get() == "next"


def test_many_threads_pickle_at_once() -> None:
    """Without mixing up their objects."""
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
def test_more_buffers_than_a_message_carries_are_sent(count: int, tensors: int) -> None:
    """Through a queue; all arrive, in order."""
    buffers = [bytearray([number]) * (16_384 + number) for number in range(count)]
    own = [_core.empty(_session.current(), "uint8", [number + 1]) for number in range(tensors)]
    line = drover.Queue()
    line.put([own, [pickle.PickleBuffer(buffer) for buffer in buffers]])
    got_own, got = line.get()
    assert [tensor.nbytes for tensor in got_own] == [tensor.nbytes for tensor in own]
    assert [bytes(buffer) for buffer in got] == buffers


def test_a_message_carries_any_number_of_tensors() -> None:
    """In order, through a queue, and mixed with buffers."""
    many = [_core.copied(_session.current(), number.to_bytes(2, "little")) for number in range(3000)]
    large = [bytearray([number]) * 20_000 for number in range(50)]
    line = drover.Queue()
    line.put([many, large])
    back, buffers = line.get()
    assert [int.from_bytes(bytes(tensor), "little") for tensor in back] == list(range(3000))
    assert buffers == large


class Registered:
    """Pickled by a registered reducer."""


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


def test_local_functions_are_sent_by_value() -> None:
    """With their closures, including buffers and local classes."""
    buffer = bytearray(b"q" * 30_000)

    class Own(collections.OrderedDict):
        """A class that cannot be imported."""

    def inner(number: int) -> Any:
        return Own(sum=number + len(buffer))

    assert dict(round_trip(inner)(2)) == {"sum": 30_002}


def test_unsupported_version_of_a_library_gives_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; its arrays are then pickled by the library itself."""
    library = types.ModuleType("numba.cuda")
    library.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(_objects._awaited, "numba.cuda", "drover._device_arrays")
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))
    monkeypatch.setitem(sys.modules, "numba.cuda", library)
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.devicearray", None)  # makes its import fail
    monkeypatch.setattr(_objects._tables, "_seen", ())  # forces a refresh, even if numba was imported before
    with pytest.warns(UserWarning, match=r"arrays of numba.cuda are pickled by the library itself"):
        assert round_trip([{1}]) == [{1}]
    assert round_trip([{2}]) == [{2}]


@pytest.mark.parametrize("error", [ValueError, TypeError], ids=["raised", "tried-again-by-value"])
def test_object_that_could_not_be_sent_is_not_kept_alive(error: type[Exception]) -> None:
    """Not even until garbage collection: another process may be waiting for its memory."""

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


def test_sending_imports_no_library() -> None:
    """Neither numpy, torch and other array libraries nor cloudpickle."""
    code = """
import sys
import drover
queue = drover.Queue()
queue.put([{1}, {"a": bytearray(100_000)}])
queue.get()
print([name for name in ("numpy", "torch", "cupy", "jax", "numba", "cloudpickle") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


class Lone:
    """An object that a tensor may describe completely."""


def test_object_that_a_tensor_describes_is_sent_without_a_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only as the whole message, and only if there is such a tensor; register_array overrides it."""
    tensor = _core.copied(_session.current(), b"bytes")
    described = [True]

    def add(thing: Lone, arrays: _core.Arrays) -> bool:
        del thing
        if described[0]:
            arrays.add_tensor(tensor)
        return described[0]

    monkeypatch.setitem(_objects.alone, Lone, add)
    payload, tensors = _objects.dumps(Lone())
    assert (payload, bytes(tensors[0])) == (_objects._ALONE_TORCH, b"bytes")
    assert _objects.dumps([Lone()])[0] != _objects._ALONE_TORCH
    described[0] = False
    assert _objects.dumps(Lone())[0] != _objects._ALONE_TORCH
    described[0] = True
    monkeypatch.setitem(_objects.reducers, Lone, lambda thing: (Lone, ()))
    drover.register_array(Lone, lambda array: array)
    assert Lone not in _objects.alone
