"""Start methods: drover's context under every name, and drover as a start method of multiprocessing."""

from __future__ import annotations

import inspect
import multiprocessing
from multiprocessing import context

import drover
import pytest
from programs import run

# Prints whether a pool notices that a worker has died.
DIE = """
def die(number):
    if number == 2:
        os._exit(1)
    return number

def notices(pool):
    try:
        pool.map(die, range(4))
    except drover.PeerLost:
        return True
    return False
"""


def _own(lines: list[str]) -> list[str]:
    """Return the lines without drover's log."""
    return [line for line in lines if "drover[" not in line]


@pytest.mark.parametrize("method", ["drover", "spawn", "fork", "forkserver"])
def test_context_of_every_name_is_ours(method: str) -> None:
    """Programs that ask for a start method get drover's pools, and a dead worker is noticed."""
    assert drover.get_context(method) is drover.get_context()
    assert method in drover.get_all_start_methods()
    lines = run(
        "import os, sys\nimport drover as mp\nimport drover\n"
        + DIE
        + """
if __name__ == "__main__":
    context = mp.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(notices(pool))
    queue = mp.Queue()
    child = context.Process(target=queue.put, args=("hello",))
    child.start()
    print(queue.get())
    child.join()
""",
        method,
    )
    assert _own(lines) == ["True", "hello"]


def test_name_of_no_start_method_is_refused() -> None:
    """With multiprocessing's message."""
    with pytest.raises(ValueError, match="cannot find context for 'thread'"):
        drover.get_context("thread")


def test_standard_contexts_stay_reachable() -> None:
    """By multiprocessing's function; they make standard objects."""
    for method, kind in (("spawn", context.SpawnContext), ("fork", context.ForkContext)):
        standard = multiprocessing.get_context(method)
        assert type(standard) is kind
        assert type(standard.SimpleQueue()).__module__ == "multiprocessing.queues"
    assert type(multiprocessing.Event()).__module__ == "multiprocessing.synchronize"


def test_start_method_of_multiprocessing_makes_everything_ours() -> None:
    """Also names that were imported before drover; another method makes standard objects again."""
    lines = run(
        "import os\nimport multiprocessing\n"
        "from multiprocessing import Pool, Process, Queue\nimport drover\n"
        + DIE
        + """
NAMES = ("Barrier", "BoundedSemaphore", "Condition", "Event", "JoinableQueue", "Lock", "Pool", "Queue", "RLock",
         "Semaphore", "SimpleQueue")
ARGUMENTS = {"Barrier": (2,), "Pool": (1,)}

if __name__ == "__main__":
    multiprocessing.set_start_method("drover")
    print(multiprocessing.get_start_method(), multiprocessing.get_context() is drover.get_context())
    for name in NAMES:
        made = getattr(multiprocessing, name)(*ARGUMENTS.get(name, ()))
        if type(made) is not getattr(drover, name):
            print(name, type(made))
        if name == "Pool":
            made.terminate()
    for made in (multiprocessing.Pipe()[0], multiprocessing.Value("i").get_lock()):
        print(type(made).__module__)
    with Pool(processes=2) as pool:
        print(notices(pool))
    queue = Queue()
    child = Process(target=queue.put, args=("hello",))
    child.start()
    print(queue.get())
    child.join()
    multiprocessing.set_start_method("spawn", force=True)
    print(type(Queue()).__module__, type(multiprocessing.get_context("drover").Queue()).__module__)
"""
    )
    assert _own(lines) == [
        "drover True",
        "drover._connection",
        "drover._synchronize",
        "True",
        "hello",
        "multiprocessing.queues drover._queues",
    ]


def test_functions_of_multiprocessing_keep_their_signatures() -> None:
    """And their arguments, by position and by keyword."""
    assert list(inspect.signature(multiprocessing.Queue).parameters) == ["maxsize"]
    assert list(inspect.signature(multiprocessing.Value).parameters) == ["typecode_or_type", "args", "lock"]
    assert multiprocessing.Value("i", 3, lock=False).value == 3
    assert multiprocessing.BoundedSemaphore(value=2).acquire()
    with pytest.raises(TypeError):
        multiprocessing.Event(1)


def test_workers_inherit_the_start_method_drover() -> None:
    """So that a task that makes a queue of multiprocessing's gets ours."""
    lines = run("""
        import multiprocessing
        import drover

        def kind():
            return type(multiprocessing.Queue()).__module__

        if __name__ == "__main__":
            multiprocessing.set_start_method("drover")
            with multiprocessing.Pool(1) as pool:
                print(pool.apply(kind))
    """)
    assert lines == ["drover._queues"]


def test_data_loader_takes_the_name() -> None:
    """torch looks the name up among all start methods."""
    pytest.importorskip("torch")
    lines = run("""
        import drover
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        if __name__ == "__main__":
            data = TensorDataset(torch.arange(8))
            loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="drover")
            print([batch.tolist() for (batch,) in loader], type(loader.multiprocessing_context).__name__)
    """)
    assert lines == ["[[0, 1, 2, 3], [4, 5, 6, 7]] DroverContext"]


@pytest.mark.parametrize("name", ["Queue", "Lock", "Event"])
def test_our_objects_are_refused_by_standard_processes(name: str) -> None:
    """When the process is started, with what to do: it could not open them."""
    child = multiprocessing.get_context("spawn").Process(target=print, args=(getattr(drover, name)(),))
    with pytest.raises(drover.Unsupported, match=r"a drover .* to a process .* .spawn.*\n.*drover.Process"):
        child.start()


NESTED = """
    import multiprocessing
    import sys
    import drover

    def work(depth):
        print("worked", flush=True)
        {inner}

    def start(context, *args):
        child = context.Process(target=work, args=args)
        child.start()
        child.join()
        print(child.exitcode, flush=True)

    if __name__ == "__main__":
        {before}
        start({outer}, 1)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("is_set", [False, True])
def test_standard_children_of_our_processes_work(method: str, is_set: bool) -> None:
    """In a drover process, and once the start method of the program is drover."""
    inner = f"depth and start(multiprocessing.get_context({method!r}), 0)"
    before = 'multiprocessing.set_start_method("drover")' if is_set else ""
    outer = f"multiprocessing.get_context({method!r})" if is_set else "drover"
    lines = run(NESTED.format(inner=inner, before=before, outer=outer))
    assert lines == ["worked", "worked", "0", "0"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_our_processes_work_in_standard_children(method: str) -> None:
    """They do not need the start method of their parent."""
    outer = f"multiprocessing.get_context({method!r})"
    assert run(NESTED.format(inner="depth and start(drover, 0)", before="", outer=outer)) == [
        "worked",
        "worked",
        "0",
        "0",
    ]


def test_loky_and_drover_nest_in_each_other() -> None:
    """loky's start method has a name that only processes with loky know."""
    pytest.importorskip("joblib")
    lines = run("""
        import drover
        from joblib.externals.loky import get_reusable_executor

        def in_loky():
            results = drover.Queue()
            child = drover.Process(target=results.put, args=("process",))
            child.start()
            first = results.get()
            child.join()
            with drover.Pool(2) as pool:
                return first, pool.map(abs, [-1, 2])

        def in_drover():
            executor = get_reusable_executor(1)
            found = list(executor.map(abs, [-1, 2]))
            executor.shutdown()
            return found

        if __name__ == "__main__":
            executor = get_reusable_executor(1)
            print(executor.submit(in_loky).result())
            executor.shutdown()
            with drover.Pool(1) as pool:
                print(pool.apply(in_drover))
            results = drover.Queue()
            child = drover.Process(target=lambda: results.put(in_drover()))
            child.start()
            print(results.get())
            child.join()
    """)
    assert lines == ["('process', [1, 2])", "[1, 2]", "[1, 2]"]
