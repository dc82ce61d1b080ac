"""Values and arrays of ctypes: where they lie, how they travel, and that they outlive who made them."""

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
from drover import _core, _objects, sharedctypes
from programs import run


class Point(ctypes.Structure):
    """Two numbers."""

    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]


def sent(thing: object) -> object:
    """Send it through a pipe."""
    one, other = drover.Pipe()
    one.send(thing)
    return other.recv()


@pytest.mark.parametrize("make", [drover, drover.get_context(), sharedctypes])
def test_they_lie_in_drovers_memory(make: object) -> None:
    """Made by the module, by the context or by `drover.sharedctypes`; of the types that ctypes has for them."""
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
        assert _core.find_shared(made).nbytes == ctypes.sizeof(kind)


def test_they_behave_as_those_of_ctypes() -> None:
    """Zeros at first, or what is given; text, slices and fields."""
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
        drover.RawValue("i", "no number")


def test_memory_that_was_used_before_is_zero_again() -> None:
    """Whatever lay there."""
    for _ in range(3):
        array = drover.RawArray("B", 100_000)
        assert not any(bytes(array))
        ctypes.memset(array, 255, ctypes.sizeof(array))
        del array


def test_locks_are_drovers_or_those_that_are_given() -> None:
    """An RLock by default; what is no lock is refused."""
    assert type(drover.Value("i").get_lock()) is drover.RLock
    assert type(drover.Array("i", 3, lock=None).get_lock()) is drover.RLock
    lock = drover.Lock()
    value = drover.Value("i", lock=lock)
    assert value.get_lock() is lock
    with value, pytest.raises(drover.InvalidArgument):
        lock.acquire()
    with pytest.raises(AttributeError, match="acquire"):
        drover.Value("i", lock="no lock")
    raw = drover.RawValue(Point)
    assert type(sharedctypes.synchronized(raw).get_lock()) is drover.RLock
    assert sharedctypes.synchronized(raw, lock).get_obj() is raw
    with pytest.raises(AssertionError, match="already synchronized"):
        sharedctypes.synchronized(value)


def test_copy_is_shared_and_another() -> None:
    """Of a shared object, and of one of this process alone."""
    for point in (drover.RawValue(Point, 1, 2.0), Point(1, 2.0)):
        same = sharedctypes.copy(point)
        point.x = 5
        assert (same.x, same.y) == (1, 2.0)
        assert _core.find_shared(same) is not None


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
def test_same_memory_is_received(make: object) -> None:
    """Through queues and pipes, too, which multiprocessing does not allow."""
    thing = make()
    same = sent(thing)
    assert type(same) is type(thing)
    ctypes.memset(ctypes.addressof(thing), 1, ctypes.sizeof(thing))
    assert bytes(same) == bytes(thing) == b"\1" * ctypes.sizeof(thing)


def test_locked_ones_are_received_with_their_locks() -> None:
    """Of every class; and what has no size is received, too."""
    for thing in (drover.Value("i", 5), drover.Array("i", 3), drover.Array("c", b"abc"), drover.Value(Point, 1, 2.0)):
        same = sent(thing)
        assert type(same) is type(thing)
        ctypes.memset(ctypes.addressof(thing.get_obj()), 1, 1)
        assert bytes(same.get_obj()) == bytes(thing.get_obj())
        assert same.get_lock()._core.handle == thing.get_lock()._core.handle
    assert len(sent(drover.RawArray("i", 0))) == 0


def test_objects_that_are_not_shared_are_copied_as_ever() -> None:
    """Although others of their type are shared."""
    drover.RawValue("i")
    drover.RawValue(Point)
    number, point = ctypes.c_int(5), Point(1, 2.0)
    same_number, same_point = sent([number, point])
    number.value = point.x = 9
    assert (same_number.value, same_point.x, same_point.y) == (5, 1, 2.0)
    assert copy.copy(drover.RawValue("i", 3)).value == 3
    assert pickle.loads(pickle.dumps(drover.RawValue("i", 3))).value == 3


def test_processes_of_other_contexts_are_refused() -> None:
    """Not given a copy in silence."""
    with pytest.raises(pickle.PicklingError, match="of drover only"):
        ForkingPickler.dumps(drover.RawValue("i", 3))


def test_standard_ones_can_be_made_beside_them() -> None:
    """They go their own way, to processes of either."""
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
    """Nor a name in shared memory."""
    folders = [Path(multiprocessing.util.get_temp_dir()), Path("/dev", "shm")]
    before = [sorted(folder.iterdir()) for folder in folders]
    array = drover.RawArray("d", 5_000_000)
    array[-1] = 3.0
    made = [sorted(path for path in folder.iterdir() if "drover" in path.name) for folder in folders]
    assert made == [[path for path in paths if "drover" in path.name] for paths in before]
    assert sorted(folders[0].iterdir()) == before[0]


def test_many_small_ones_can_be_made() -> None:
    """And are given back."""
    for _ in range(3):
        values = [drover.RawValue("i", number) for number in range(20_000)]
        assert sum(value.value for value in values) == 199_990_000


def test_any_number_of_small_ones_goes_in_one_message() -> None:
    """All of them are shared, beside arrays of other kinds; of large ones there is a limit, which is told."""
    values = [drover.RawValue("i", number) for number in range(5000)]
    locked = [drover.Value("i", number) for number in range(50)]
    large = [drover.RawArray("B", 300_000) for _ in range(10)]
    same, same_locked, same_large, plain = sent([values, locked, large, bytearray(50_000)])
    for value in values:
        value.value += 1
    assert [value.value for value in same] == list(range(1, 5001))
    locked[7].value = large[3][5] = 77
    assert (same_locked[7].value, same_large[3][5], len(plain)) == (77, 77, 50_000)
    with pytest.raises(drover.LimitReached, match="40 values and arrays"):
        sent([drover.RawArray("B", 300_000) for _ in range(40)])


def test_they_stay_shared_beside_many_tensors_of_other_kinds() -> None:
    """Some are joined in ways of their own, others not at all; each comes back as it was."""
    session = drover._session.current()

    def join(tensors: list[_core.Tensor]) -> tuple[list[_core.Tensor], list[tuple[int, int, int]]]:
        whole = _core.copied(session, b"".join(map(bytes, tensors)))
        return [whole], [(0, 4 * at, 4) for at in range(len(tensors))]

    class Joined:
        def __init__(self, tensor: _core.Tensor) -> None:
            self.tensor = tensor

        def __reduce__(self) -> object:
            return _objects.carried, (_objects.carry(self.tensor, join),)

    values = [drover.RawValue("i", number) for number in range(40)]
    joined = [Joined(_core.copied(session, bytes([number] * 4))) for number in range(40)]
    grid = _core.empty(session, "float32", [3, 5])
    for thing in ([values, joined, grid], [joined, grid, values]):
        got = dict(zip(map(id, thing), sent(thing), strict=True))
        values[3].value += 1
        assert got[id(values)][3].value == values[3].value
        assert [bytes(one) for one in got[id(joined)]] == [bytes([number] * 4) for number in range(40)]
        assert (got[id(grid)].dtype, got[id(grid)].shape) == ("float32", (3, 5))


def test_forked_child_does_not_give_out_its_parents_memory() -> None:
    """It cannot make shared objects, and says so; what the parent makes then is the parent's."""
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


def test_structure_of_a_main_module_without_a_guard_is_refused_with_what_to_do() -> None:
    """Its class cannot be sent by value; numbers of such a module can be shared."""
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


def test_array_of_numpy_over_one_goes_by_handle() -> None:
    """So the two are used together."""
    numpy = pytest.importorskip("numpy")
    array = drover.Array("d", 10)
    same = sent(numpy.frombuffer(array.get_obj()))
    same[3] = 5.0
    assert array[3] == 5.0


def test_processes_share_them_and_what_a_dead_one_made_lives() -> None:
    """Arguments, initargs of pools, arguments of tasks, queues; nothing is lost when many add at once."""
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
