"""Numpy arrays: those in shared memory are shared, all others come back equal."""

from __future__ import annotations

import gc
import itertools
import random
import types
from typing import Any

import drover
import pytest
from drover import _core, _device_arrays, _objects, _session
from programs import run

np = pytest.importorskip("numpy")


def round_trip(thing: Any) -> Any:
    """Return the object as another process would receive it."""
    return _objects.loads(*_objects.dumps(thing))


def assert_same(back: Any, array: Any) -> None:
    """Compare everything that a program can see."""
    assert type(back) is type(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.flags.writeable == array.flags.writeable
    if array.dtype.hasobject:
        np.testing.assert_array_equal(back, array)
    else:
        assert back.tobytes() == array.tobytes()


TYPES = [
    "?",
    "i1",
    "u2",
    "i4",
    "<u8",
    ">i8",
    "f2",
    "f4",
    "f8",
    ">f8",
    "c8",
    "c16",
    "M8[ns]",
    "m8[s]",
    "U3",
    "S5",
    "V7",
]
TYPES += ["f4,(2,3)i2", [("a", "i4"), ("b", "f8", (2,))], "O"]


def make(random_: random.Random) -> Any:
    """Return an array of random dtype, size, layout and order."""
    shape = tuple(random_.choice([0, 1, 3, 17, 40]) for _ in range(random_.randrange(4)))
    dtype = np.dtype(random_.choice(TYPES))
    count = int(np.prod(shape))
    if dtype.hasobject:
        array = np.array([random_.choice([None, "x", 5]) for _ in range(count)], object).reshape(shape)
    else:
        letters = (
            random_.randbytes(count * dtype.itemsize) if dtype.kind not in "bU" else bytes(count * dtype.itemsize)
        )
        array = np.frombuffer(bytearray(letters), dtype, count).reshape(shape) if count else np.empty(shape, dtype)
    if random_.random() < 0.3:
        array = np.asfortranarray(array)
    if shape and random_.random() < 0.4:
        array = array[tuple(slice(None, None, random_.choice([1, 2, -1])) for _ in shape)]
    if random_.random() < 0.3:
        array = array.T
    # Strided arrays and arrays of objects come back as copies, which are writable.
    is_whole = array.flags.c_contiguous or array.flags.f_contiguous
    if array.nbytes and is_whole and not dtype.hasobject and random_.random() < 0.2:
        array = array.view()
        array.flags.writeable = False
    return array


@pytest.mark.parametrize("seed", range(150))
def test_random_arrays_come_back(seed: int) -> None:
    """Of every kind, on their own and nested."""
    array = make(random.Random(seed))
    assert_same(round_trip(array), array)
    assert_same(round_trip({"in": [array, 1]})["in"][0], array)


@pytest.mark.parametrize("dtype", TYPES[:-1])
def test_large_arrays_are_not_in_the_pickle(dtype: Any) -> None:
    """Whatever their dtype, order and strides."""
    array = np.zeros((60, 90), dtype)
    for form in (array, array.T, array[::2, ::3], array[::-1]):
        payload, tensors = _objects.dumps(form)
        assert len(tensors) == (form.nbytes >= _objects.INLINE), form.nbytes
        assert len(payload) < _objects.INLINE + 1000
        assert_same(_objects.loads(payload, tensors), form)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", [np.matrix, np.ma.array, np.rec.array])
def test_subclasses_keep_their_type(kind: Any) -> None:
    """They are pickled by their own reductions."""
    array = kind(np.zeros((50, 60), "i4,f8" if kind is np.rec.array else "f8"))
    assert_same(round_trip(array), array)


def test_received_copies_are_writable_and_independent() -> None:
    """Arrays outside of shared memory are copied."""
    for count in (10, 100_000):
        array = np.zeros(count)
        back = round_trip(array)
        back[0] = 1
        assert array[0] == 0


@pytest.mark.parametrize("count", [1, 10, 1_000_000])
def test_array_in_shared_memory_is_shared(count: int) -> None:
    """Whole, in parts, transposed and strided, and when it is sent once more."""
    array = drover.zeros((count, 4))
    views = [array, array[count // 2 :], array.T, array[:, 1:3], array[::-1, ::-2], array[-1:, 2:3], array[::2].T]
    for number, view in enumerate(views, 1):
        back = round_trip(view)
        assert_same(back, view)
        back[-1, -1] = number
        assert view[-1, -1] == number
        again = round_trip(back)
        again[0, 0] = -number
        assert view[0, 0] == -number


def test_whole_array_is_shared_while_received_parts_of_it_exist() -> None:
    """A received part does not hide the array that it lies in."""
    array = drover.zeros(1000)
    parts = [round_trip(array[begin : begin + 10]) for begin in range(0, 1000, 100)]
    for begin in range(5, 900, 50):
        back = round_trip(array[begin : begin + 80])
        back[0] = begin
        assert array[begin] == begin
    assert len(parts) == 10


@pytest.mark.parametrize("is_shared", [True, False])
def test_only_arrays_outside_of_shared_memory_are_copied(is_shared: bool) -> None:
    """A shared array of 100 MB is sent where it lies."""
    array = (drover if is_shared else np).zeros(100 << 20, np.uint8)
    payload, tensors = _objects.dumps({"array": array})
    assert len(payload) < 1000
    assert [tensor.nbytes for tensor in tensors] == [array.nbytes]
    sent = np.frombuffer(tensors[0], np.uint8)
    assert (sent.ctypes.data == array.ctypes.data) is is_shared


@pytest.mark.parametrize("plain", [0, 1, 50])
@pytest.mark.parametrize("shared", [1, 2, 40])
def test_more_parts_of_arrays_than_a_message_carries_are_shared(shared: int, plain: int) -> None:
    """Parts of one array count as one. Of too many arrays, some are copied; all values are right."""
    arrays = [drover.array(np.arange(20_000) + number) for number in range(shared)]
    rows = [array[begin : begin + 100] for array in arrays for begin in range(0, 20_000, 400)]
    rows += [np.full(3000, number) for number in range(plain)]
    random.Random(shared).shuffle(rows)
    line = drover.Queue()
    line.put(rows)
    back = line.get()
    for one, other in zip(back, rows, strict=True):
        assert_same(one, other)
    if shared > 2:
        return
    for number, row in enumerate(back):
        row[0] = -number
    for number, row in enumerate(rows):
        assert (row[0] == -number) == (row.size == 100) or number == 0


def test_created_arrays_equal_those_of_numpy() -> None:
    """Dtype, shape and contents, and errors."""
    for shape, dtype in itertools.product([0, 5, (), (2, 3), (4, 0)], [float, "i2", "M8[s]", "f4,i2", "U4"]):
        for made, like in ((drover.zeros, np.zeros), (drover.empty, np.empty)):
            assert made(shape, dtype).shape == like(shape, dtype).shape
            assert made(shape, dtype).dtype == np.dtype(dtype)
    assert not drover.zeros(10_000).any()
    for like in ([[1, 2], [3, 4]], np.arange(12.0).reshape(3, 4).T, 5, "text", range(9)):
        assert_same(drover.array(like), np.asarray(like).copy("C"))
    assert drover.array([1, 2], "f4").dtype == np.float32
    with pytest.raises(drover.InvalidArgument, match="Python objects"):
        drover.empty(3, object)
    with pytest.raises(ValueError, match="negative"):
        drover.zeros(-1)
    with pytest.raises(drover.Error):
        drover.empty(1 << 50)


@pytest.mark.parametrize("is_shared", [False, True])
def test_repeated_elements_are_sent_once(is_shared: bool) -> None:
    """Those of broadcast arrays and of windows, which are read-only at the receiver as they are here."""
    base = np.arange(2000.0)
    base = drover.array(base) if is_shared else base
    windows = np.lib.stride_tricks.sliding_window_view(base, 1000)
    for array in (np.broadcast_to(base[:500], (3000, 500)), windows, windows[::-1, ::2]):
        payload, tensors = _objects.dumps([array])
        assert len(payload) + sum(memoryview(tensor).nbytes for tensor in tensors) < 40_000 * (2 if is_shared else 1)
        back = _objects.loads(payload, tensors)[0]
        assert (back == array).all()
        assert back.dtype == array.dtype
        assert not back.flags.writeable


@pytest.mark.parametrize("part", [slice(None), slice(None, None, 2)], ids=["whole", "strided"])
def test_read_only_arrays_in_shared_memory_stay_read_only(part: slice) -> None:
    """The memory is the same; the view that was sent permits no writing."""
    array = drover.zeros((100, 100))
    view = array[part]
    view.flags.writeable = False
    back = round_trip([view])[0]
    assert not back.flags.writeable
    array.fill(4)
    assert (back == 4).all()
    assert round_trip([array[part]])[0].flags.writeable


def test_memory_is_freed_with_the_last_reference() -> None:
    """Neither regions nor arrays leak."""
    for _ in range(200):
        array = drover.empty(8 << 20, np.uint8)
        back = round_trip(array)
        assert back.nbytes == array.nbytes
    raw = memoryview(array)
    assert _core.find_shared(_session.current(), raw) is not None
    del array, back, raw
    gc.collect()
    again = np.zeros(8 << 20, np.uint8)
    assert _core.find_shared(_session.current(), memoryview(again)) is None


def test_two_processes_share_memory() -> None:
    """An argument, a part of it sent through a queue, and a result that the child created."""
    lines = run("""
        import numpy as np
        import drover

        def work(array, parts, results):
            array[0] = 42.0
            part = parts.get()
            part[:] = 7.0
            own = drover.zeros(1000)
            results.put(own)
            parts.get()
            results.put(float(own[5]))

        array = drover.zeros((1000, 100))
        parts, results = drover.Queue(), drover.Queue()
        child = drover.Process(target=work, args=(array, parts, results))
        child.start()
        parts.put(array[500:510, ::2])
        own = results.get()
        own[5] = 3.0
        parts.put("go on")
        print(results.get(), array[0, 0], array[505, 2], array[505, 3])
        child.join()
        print(child.exitcode, float(own[5]))
    """)
    assert lines == ["3.0 42.0 7.0 0.0", "0 3.0"]


def test_array_outlives_the_process_that_created_it() -> None:
    """Even if that process was killed."""
    lines = run("""
        import os, signal
        import drover

        def work(results):
            results.put(drover.array(range(100_000)))
            os.kill(os.getpid(), signal.SIGKILL)

        results = drover.Queue()
        child = drover.Process(target=work, args=(results,))
        child.start()
        child.join()
        print(child.exitcode, int(results.get().sum()))
    """)
    assert lines == ["-9 4999950000"]


def test_capsules_and_interfaces_of_device_arrays() -> None:
    """With host memory instead of a GPU; the structures are the same."""
    source = np.arange(24, dtype="f4").reshape(4, 6)[:, ::2]
    capsule = _device_arrays.capsule_of(source.__array_interface__, source, (1, 0))
    tensor, way = _core.import_array(_session.current(), capsule, None)
    assert way == "copied"
    np.testing.assert_array_equal(np.asarray(memoryview(tensor)), source)
    del capsule
    gc.collect()
    interface = _device_arrays.interface_of(tensor, "<f4")
    assert interface["shape"] == (4, 3)

    view = np.asarray(types.SimpleNamespace(__array_interface__={**interface, "stream": None}))
    view[2, 1] = -1.0
    assert memoryview(tensor)[2, 1] == -1.0
