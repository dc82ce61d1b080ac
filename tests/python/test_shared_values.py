"""Ctypes values and arrays: their memory, how they are sent, and their lifetime."""

from __future__ import annotations

import copy
import ctypes
import multiprocessing
import multiprocessing.sharedctypes
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import drover
import pytest
from drover import _core, sharedctypes
from programs import run


class Point(ctypes.Structure):
    """Two numbers."""

    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]


def sent(thing: object) -> object:
    """Send the object through a pipe."""
    one, other = drover.Pipe()
    one.send(thing)
    return other.recv()


@pytest.mark.parametrize("make", [drover, drover.get_context(), sharedctypes])
def test_values_lie_in_shared_memory(make: object) -> None:
    """Created by the module, the context or `drover.sharedctypes`; with the ctypes type."""
    for made, kind in (
        (make.RawValue("i", 5), ctypes.c_int),
        (make.RawValue(ctypes.c_double), ctypes.c_double),
        (make.RawValue(Point, 1, 2.0), Point),
        (make.RawArray("d", 5), ctypes.c_double * 5),
        (make.Value("q", 5, lock=False), ctypes.c_longlong),
        (make.Value("q", 5).get_obj(), ctypes.c_longlong),
        (make.Array("c", b"abc").get_obj(), ctypes.c_char * 3),
    ):
        assert type(made) is kind
        assert _core.find_shared(drover._session.current(), made).nbytes == ctypes.sizeof(kind)


def test_values_behave_like_ctypes_objects() -> None:
    """Initial values, strings, slices and fields."""
    assert drover.RawValue("i").value == 0
    assert list(drover.RawArray("i", 3)) == [0, 0, 0]
    array = drover.Array("i", range(5))
    array[1:3] = [10, 20]
    assert (len(array), array[-1], array[:]) == (5, 4, [0, 10, 20, 3, 4])
    text = drover.Array("c", 10)
    text.value = b"hello"
    assert (text.value, text.raw) == (b"hello", b"hello" + bytes(5))
    assert drover.Array("u", "abc").get_obj().value == "abc"
    point = drover.Value(Point, 1, 2.5)
    point.x += 1
    assert (point.x, point.y, type(point).__name__) == (2, 2.5, "SynchronizedPoint")
    assert len(drover.RawArray("i", 0)) == 0
    grid = drover.RawArray(ctypes.c_int * 3, 2)
    grid[1][2] = 7
    assert list(grid[1]) == [0, 0, 7]
    with pytest.raises(TypeError):
        drover.RawValue("i", "not a number")


def test_reused_memory_is_zeroed() -> None:
    """Whatever was written to it before."""
    for _ in range(3):
        array = drover.RawArray("B", 100_000)
        assert not any(bytes(array))
        ctypes.memset(array, 255, ctypes.sizeof(array))
        del array


def test_lock_is_a_drover_lock_or_the_given_one() -> None:
    """By default an RLock; an object that is not a lock is refused."""
    assert type(drover.Value("i").get_lock()) is drover.RLock
    assert type(drover.Array("i", 3, lock=None).get_lock()) is drover.RLock
    lock = drover.Lock()
    value = drover.Value("i", lock=lock)
    assert value.get_lock() is lock
    with value, pytest.raises(drover.InvalidArgument):
        lock.acquire()
    with pytest.raises(AttributeError, match="acquire"):
        drover.Value("i", lock="not a lock")
    raw = drover.RawValue(Point)
    assert type(sharedctypes.synchronized(raw).get_lock()) is drover.RLock
    assert sharedctypes.synchronized(raw, lock).get_obj() is raw
    with pytest.raises(AssertionError, match="already synchronized"):
        sharedctypes.synchronized(value)


def test_copy_is_shared_and_independent() -> None:
    """Of a shared object and of a private one."""
    for point in (drover.RawValue(Point, 1, 2.0), Point(1, 2.0)):
        same = sharedctypes.copy(point)
        point.x = 5
        assert (same.x, same.y) == (1, 2.0)
        assert _core.find_shared(drover._session.current(), same) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: drover.RawValue("i", 5),
        lambda: drover.RawArray("d", 3),
        lambda: drover.RawValue(Point, 1, 2.0),
        lambda: drover.RawArray(Point, 3)[1],
        lambda: drover.RawArray(ctypes.c_int * 3, 2),
    ],
)
def test_received_value_has_the_same_memory(make: object) -> None:
    """Also through queues and pipes, which multiprocessing does not allow."""
    thing = make()
    same = sent(thing)
    assert type(same) is type(thing)
    ctypes.memset(ctypes.addressof(thing), 1, ctypes.sizeof(thing))
    assert bytes(same) == bytes(thing) == b"\1" * ctypes.sizeof(thing)


def test_values_with_locks_are_received_with_their_locks() -> None:
    """Of every class; an empty array is received, too."""
    for thing in (drover.Value("i", 5), drover.Array("i", 3), drover.Array("c", b"abc"), drover.Value(Point, 1, 2.0)):
        same = sent(thing)
        assert type(same) is type(thing)
        ctypes.memset(ctypes.addressof(thing.get_obj()), 1, 1)
        assert bytes(same.get_obj()) == bytes(thing.get_obj())
        assert same.get_lock()._core.handle == thing.get_lock()._core.handle
    assert len(sent(drover.RawArray("i", 0))) == 0


def test_private_objects_are_copied() -> None:
    """Although others of the same type are shared."""
    drover.RawValue("i")
    drover.RawValue(Point)
    number, point = ctypes.c_int(5), Point(1, 2.0)
    same_number, same_point = sent([number, point])
    number.value = point.x = 9
    assert (same_number.value, same_point.x, same_point.y) == (5, 1, 2.0)
    assert copy.copy(drover.RawValue("i", 3)).value == 3
    assert pickle.loads(pickle.dumps(drover.RawValue("i", 3))).value == 3


def test_processes_of_other_contexts_are_refused() -> None:
    """Instead of a silent copy."""
    with pytest.raises(pickle.PicklingError, match="cannot pickle an array in shared memory"):
        ForkingPickler.dumps(drover.RawValue("i", 3))


def test_standard_values_work_beside_them() -> None:
    """They are sent in the standard way, to processes of either library."""
    lines = run("""
        import multiprocessing
        import drover

        def add(*numbers):
            for number in numbers:
                number.value += 1

        if __name__ == "__main__":
            ours = drover.RawValue("i", 5)
            theirs = multiprocessing.get_context("spawn").RawValue("i", 6)
            more = drover.RawValue("i", 7)
            child = drover.Process(target=add, args=(ours, theirs, more))
            child.start()
            child.join()
            print(ours.value, theirs.value, more.value)
            child = multiprocessing.get_context("spawn").Process(target=add, args=(theirs,))
            child.start()
            child.join()
            print(theirs.value)
    """)
    assert lines == ["6 7 8", "8"]


def test_large_array_needs_no_file() -> None:
    """Nor a name in /dev/shm."""
    folders = [Path(multiprocessing.util.get_temp_dir()), Path("/dev", "shm")]
    before = [sorted(folder.iterdir()) for folder in folders]
    array = drover.RawArray("d", 5_000_000)
    array[-1] = 3.0
    made = [sorted(path for path in folder.iterdir() if "drover" in path.name) for folder in folders]
    assert made == [[path for path in paths if "drover" in path.name] for paths in before]
    assert sorted(folders[0].iterdir()) == before[0]


def test_many_small_values_can_be_created() -> None:
    """And are freed."""
    for _ in range(3):
        values = [drover.RawValue("i", number) for number in range(20_000)]
        assert sum(value.value for value in values) == 199_990_000


def test_any_number_of_small_values_fits_in_one_message() -> None:
    """All of them are shared, next to other arrays."""
    values = [drover.RawValue("i", number) for number in range(5000)]
    locked = [drover.Value("i", number) for number in range(50)]
    large = [drover.RawArray("B", 300_000) for _ in range(10)]
    same, same_locked, same_large, plain = sent([values, locked, large, bytearray(50_000)])
    for value in values:
        value.value += 1
    assert [value.value for value in same] == list(range(1, 5001))
    locked[7].value = large[3][5] = 77
    assert (same_locked[7].value, same_large[3][5], len(plain)) == (77, 77, 50_000)
    arrays = [drover.RawArray("B", 300_000) for _ in range(40)]
    for number, one in enumerate(sent(arrays)):
        one[5] = number
    assert [one[5] for one in arrays] == list(range(40))


def test_values_stay_shared_next_to_many_other_tensors() -> None:
    """Each comes back unchanged, in whatever order they are sent."""
    session = drover._session.current()
    values = [drover.RawValue("i", number) for number in range(40)]
    tensors = [_core.copied(session, bytes([number] * 4)) for number in range(40)]
    grid = _core.empty(session, "float32", [3, 5])
    for thing in ([values, tensors, grid], [tensors, grid, values]):
        got = dict(zip(map(id, thing), sent(thing), strict=True))
        values[3].value += 1
        assert got[id(values)][3].value == values[3].value
        assert [bytes(one) for one in got[id(tensors)]] == [bytes([number] * 4) for number in range(40)]
        assert (got[id(grid)].dtype, got[id(grid)].shape) == ("float32", (3, 5))


def test_forked_child_does_not_use_its_parents_memory() -> None:
    """Creating a shared value raises in the child, and the parent's memory is unchanged."""
    lines = run("""
        import os
        import drover

        drover.RawValue("i", 1)
        child = os.fork()
        if child == 0:
            try:
                drover.RawValue("i", 2)
            except drover.Error as error:
                print(type(error).__name__, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(drover.RawValue("i").value)
    """)
    assert lines[-2:] in (["Forked", "0"], ["PeerLost", "0"])


def test_structure_of_a_main_module_without_a_guard_is_refused() -> None:
    """With a remedy: its class cannot be sent by value. Numbers can be shared."""
    lines = run("""
        import ctypes
        import drover

        class Pair(ctypes.Structure):
            _fields_ = [("x", ctypes.c_int)]

        def add(number):
            number.value += 1

        number = drover.Value("i", 1)
        child = drover.Process(target=add, args=(number,))
        child.start()
        child.join()
        print(number.value)
        try:
            drover.Process(target=print, args=(drover.Array(Pair, 2),)).start()
        except drover.InvalidArgument as error:
            print("Pair" in str(error), "__main__" in error.remedy)
    """)
    assert lines == ["2", "True True"]


def test_numpy_array_over_a_shared_array_is_sent_by_handle() -> None:
    """Both see the same elements."""
    numpy = pytest.importorskip("numpy")
    array = drover.Array("d", 10)
    same = sent(numpy.frombuffer(array.get_obj()))
    same[3] = 5.0
    assert array[3] == 5.0


def test_processes_share_values_that_outlive_their_creator() -> None:
    """As arguments, in initargs, in tasks and through queues; concurrent additions are not lost."""
    lines = run("""
        import os, signal
        import drover

        def add(value, array, raw):
            for _ in range(200):
                with value.get_lock():
                    value.value += 1
                array[0] += 0.5
            raw.value = os.getpid()

        def make(forth, back):
            value, array = drover.Value("i", 40), drover.Array("d", [1.5] * 1000)
            forth.put((value, array))
            back.get()
            os.kill(os.getpid(), signal.SIGKILL)

        def keep(value):
            global kept
            kept = value

        def use(array):
            kept.value += 1
            array[1] = kept.value

        if __name__ == "__main__":
            value, array, raw = drover.Value("i"), drover.Array("d", 3, lock=drover.Lock()), drover.RawValue("l")
            children = [drover.Process(target=add, args=(value, array, raw)) for _ in range(2)]
            for child in children:
                child.start()
            for child in children:
                child.join()
            print(value.value, raw.value in [child.pid for child in children])
            forth, back = drover.Queue(), drover.Queue()
            child = drover.Process(target=make, args=(forth, back))
            child.start()
            got, many = forth.get()
            back.put("received")
            child.join()
            with got.get_lock():
                got.value += 2
            print(child.exitcode, got.value, sum(many))
            with drover.Pool(1, keep, (got,)) as pool:
                pool.apply(use, (many,))
            print(got.value, many[1])
    """)
    assert lines == ["400 True", "-9 42 1500.0", "43 43.0"]
