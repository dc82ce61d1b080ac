"""Named sessions: objects kept by one program are there for the next, however the first one ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest
from programs import Program, run

pytest.importorskip("numpy")


def _call(name: str, call: str) -> None:
    code = f"import drover; drover.Session({name!r}).{call}()"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


@pytest.fixture
def name() -> Iterator[str]:
    """Return the name of a session that exists until the end of the test."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    _call(name, "close")
    yield name
    _call(name, "end")


def test_restarted_program_finds_its_arrays(name: str) -> None:
    """After a kill, with everything that was written, in the same memory."""
    program = """
        import sys, time
        import drover

        session = drover.Session(sys.argv[1])
        if "state" in session.kept():
            state = session.recall("state")
            print("recalled", state["epoch"], float(state["weights"].sum()), state["weights"].dtype)
            state["weights"][:] = 2.0
            print(float(session.recall("state")["weights"].sum()))
        else:
            weights = drover.zeros((1000, 1000), "f4")
            session.keep("state", {"epoch": 3, "weights": weights})
            weights[:10] = 1.0
            print("kept", flush=True)
            time.sleep(1000)
    """
    with Program(program, name) as first:
        first.wait_for("kept")
        first.signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
    assert run(program, name) == ["recalled 3 10000.0 float32", "2000000.0"]


def test_any_object_can_be_kept(name: str) -> None:
    """Arrays of any kind, small and large, many at once, and objects without arrays."""
    keep = """
        import sys
        import numpy as np
        import drover

        session = drover.Session(sys.argv[1])
        session.keep("number", 5)
        session.keep("array", np.arange(5))
        session.keep("turned", np.asfortranarray(np.arange(60_000).reshape(200, 300)))
        session.keep("many", [np.full(10, number) for number in range(100)])
        session.keep("function", lambda number: number + 1)
        session.keep("times", np.array(["2026-01-02"], "M8[D]"))
    """
    assert run(keep, name) == []
    recall = """
        import sys
        import drover

        session = drover.Session(sys.argv[1])
        print(list(session.kept()))
        print(session.recall("number"), session.recall("array"), session.recall("turned")[199, 298:].tolist())
        print(sum(int(array.sum()) for array in session.recall("many")), session.recall("function")(1))
        print(session.recall("times"))
    """
    assert run(recall, name) == [
        "['array', 'function', 'many', 'number', 'times', 'turned']",
        "5 [0 1 2 3 4] [59998, 59999]",
        "49500 2",
        "['2026-01-02']",
    ]


def test_tensors_of_torch_are_kept(name: str) -> None:
    """With their dtypes; a module, too."""
    pytest.importorskip("torch")
    keep = """
        import sys
        import torch
        import drover

        session = drover.Session(sys.argv[1])
        kept = session.keep("tensor", torch.ones(50, dtype=torch.bfloat16))
        kept[0] = 3.0
        session.keep("model", torch.nn.Linear(3, 2))
    """
    assert run(keep, name) == []
    recall = """
        import sys
        import drover

        session = drover.Session(sys.argv[1])
        tensor = session.recall("tensor")
        print(tensor.dtype, float(tensor.sum()), session.recall("model"))
    """
    expected = "torch.bfloat16 52.0 Linear(in_features=3, out_features=2, bias=True)"
    assert run(recall, name) == [expected]


def test_replaced_and_dropped_objects_take_no_memory(name: str) -> None:
    """The name has the arrays, too: there is one entry, and the memory of the old ones is freed."""
    lines = run(
        """
        import sys
        import numpy as np
        import drover

        session = drover.Session(sys.argv[1])
        for number in range(3):
            kept = session.keep("a", {"large": np.full(100_000, number), "small": np.zeros(3)})
        print(session.recall("a")["large"][0], session.kept().keys(), 800_000 <= session.kept()["a"] < 900_000)
        session.keep("a", 1)
        print(session.recall("a"), session.kept()["a"] < 10_000)
        print(kept["large"][0])
        session.drop("a")
        print(session.kept())
        """,
        name,
    )
    assert lines == ["2 dict_keys(['a']) True", "1 True", "2", "{}"]


def test_object_with_a_thousand_arrays_is_one_entry(name: str) -> None:
    """Those in shared memory stay where they are; the others are copied into few blocks."""
    pytest.importorskip("torch")
    program = """
        import sys
        import numpy
        import drover, drover.torch
        import torch

        session = drover.Session(sys.argv[1])
        if not session.kept():
            own = drover.zeros(3)
            shared = [drover.torch.zeros(5) for _ in range(400)]
            copied = {str(number): torch.full((100,), float(number)) for number in range(600)}
            session.keep("state", {"own": own, "shared": shared, "copied": copied, "large": numpy.ones(2_000_000)})
            own[1] = 7.0
            shared[399][4] = 9.0
            copied["5"].zero_()
        print(list(session.kept()), session.kept()["state"] < 17_000_000)
        state = session.recall("state")
        print(state["own"][1], state["shared"][399][4].item(), state["large"].sum())
        print(all((tensor == int(key)).all() for key, tensor in state["copied"].items()))
    """
    expected = ["['state'] True", "7.0 9.0 2000000.0", "True"]
    assert run(program, name) == expected
    assert run(program, name) == expected, "in the next program"


def test_arrays_in_too_many_blocks_are_refused(name: str) -> None:
    """With a remedy; what was kept before stays."""
    lines = run(
        """
        import sys
        import drover

        session = drover.Session(sys.argv[1])
        session.keep("state", 1)
        arrays = [drover.zeros(3) for _ in range(1023)]
        try:
            session.keep("state", arrays)
        except drover.LimitReached as error:
            print("1024 blocks" in str(error), "1023" in str(error), error.remedy)
        print(session.recall("state"))
        session.keep("state", arrays[1:])
        print(len(session.recall("state")))
        """,
        name,
    )
    assert lines == ["True True keep them under several names", "1", "1022"]


@pytest.mark.parametrize("mode", ["value", "reference"])
def test_kept_tensors_outlive_the_memory_of_torch(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own shared memory, and what is sent by reference, would end with the program."""
    pytest.importorskip("torch")
    monkeypatch.setenv("DROVER_SEND", mode)
    keep = """
        import os, signal, sys
        import drover, torch

        session = drover.Session(sys.argv[1])
        for size in (5, 50_000):
            shared = torch.ones(size).share_memory_()
            session.keep(f"alone {size}", shared)
            session.keep(f"in {size}", {"plain": torch.ones(size), "shared": shared, "part": shared[1:]})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run(keep, name, status=-signal.SIGKILL)
    recall = """
        import sys
        import drover

        session = drover.Session(sys.argv[1])
        for size in (5, 50_000):
            inside = session.recall(f"in {size}")
            inside["shared"][1] = 3.0
            print(session.recall(f"alone {size}")[:3].tolist(), inside["plain"].sum().item() / size)
            print(inside["part"][0].item())
    """
    assert run(recall, name) == ["[1.0, 3.0, 1.0] 1.0", "3.0"] * 2


def test_torchs_shared_memory_is_kept_without_a_copy(name: str) -> None:
    """Tensors of any size, alone, in structures, in part, and in modules; writes reach what is kept."""
    pytest.importorskip("torch")
    lines = run(
        """
        import sys
        import drover, torch

        session = drover.Session(sys.argv[1])
        for size in (5, 50_000):
            shared = torch.ones(size).share_memory_()
            session.keep("alone", shared)
            session.keep("in", {"whole": shared, "part": shared[1:]})
            shared[1] = 3.0
            inside = session.recall("in")
            print(session.recall("alone")[1].item(), inside["whole"][1].item(), inside["part"][0].item())
        model = torch.nn.Linear(200, 200).share_memory()
        session.keep("model", model)
        model.weight.data.fill_(7.0)
        print(session.recall("model").weight[3, 3].item())
        """,
        name,
    )
    assert lines == ["3.0 3.0 3.0", "3.0 3.0 3.0", "7.0"]


def test_program_killed_during_keep_leaves_a_whole_object(name: str) -> None:
    """The old one or the new one, and no memory of those that it replaced."""
    program = """
        import sys
        import numpy
        import drover

        session = drover.Session(sys.argv[1])
        number = session.recall("state")["number"]
        print("begins", flush=True)
        while True:
            number += 1
            arrays = [numpy.full(3000, number) for _ in range(50)]
            session.keep("state", {"number": number, "arrays": arrays, "own": drover.array(arrays[0])})
    """
    start = """
        import sys
        import numpy
        import drover

        drover.Session(sys.argv[1]).keep("state", {"number": 0, "arrays": [], "own": numpy.zeros(1)})
    """
    look = """
        import sys
        import drover

        session = drover.Session(sys.argv[1])
        state = session.recall("state")
        assert {*state["own"], *(number for one in state["arrays"] for number in one)} == {state["number"]}
        print(state["number"], list(session.kept()), session.kept()["state"] < 1_500_000)
    """
    assert run(start, name) == []
    numbers = []
    for delay in (0.001, 0.013, 0.05, 0.1, 0.2):
        with Program(program, name) as writer:
            writer.wait_for("begins")
            time.sleep(delay)
            writer.signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
        number, rest = run(look, name)[0].split(" ", 1)
        numbers.append(int(number))
        assert rest == "['state'] True"
    assert numbers == sorted(numbers)
    assert numbers[-1] > 5


def test_tensors_kept_together_by_another_program_are_a_list(name: str) -> None:
    """As by keep_all in C++; a single one is not in a list."""
    lines = run(
        """
        import sys
        import drover
        from drover import _core

        session = drover.Session(sys.argv[1])
        one, other = (_core.copied(session._core, bytes([number] * 4)) for number in (1, 2))
        session._core.keep("both", [one, other])
        session._core.keep("one", [one])
        print([array.tolist() for array in session.recall("both")], session.recall("one").tolist())
        print(*(info["description"] for info in session._core.kept()), sep="; ")
        """,
        name,
    )
    assert lines == ["[[1, 1, 1, 1], [2, 2, 2, 2]] [1, 1, 1, 1]", "2 tensors, first uint8[4] at cpu; uint8[4] at cpu"]


def test_recall_during_replacement_returns_one_whole_object(name: str) -> None:
    """While another process replaces it continually."""
    lines = run(
        """
        import sys
        import numpy as np
        import drover

        def replace(name, is_over):
            session = drover.Session(name)
            number = 0
            while not is_over.is_set():
                number += 1
                session.keep("pair", (np.full(5000, number), np.full(6000, number)))

        session = drover.Session(sys.argv[1])
        session.keep("pair", (np.full(5000, 0), np.full(6000, 0)))
        is_over = drover.Event()
        child = drover.Process(target=replace, args=(session.name, is_over))
        child.start()
        seen = set()
        while len(seen) < 50:
            one, other = session.recall("pair")
            assert (one == one[0]).all() and (other == one[0]).all()
            seen.add(int(one[0]))
        is_over.set()
        child.join()
        print(child.exitcode)
        """,
        name,
    )
    assert lines == ["0"]


def test_writers_of_one_name_lose_nothing(name: str) -> None:
    """Threads and a process replace an object continually: each recall returns a whole one, and no part leaks."""
    lines = run(f"""
        import threading, time
        import drover, numpy

        def write(until):
            session = drover.Session()
            number = 0
            while time.monotonic() < until:
                number += 1
                session.keep("x", {{"a": numpy.full(5000, number), "b": number}})

        if __name__ == "__main__":
            session = drover.Session({name!r})
            session.keep("x", {{"a": numpy.zeros(5000), "b": 0}})
            until = time.monotonic() + 2.0
            writers = [threading.Thread(target=write, args=(until,)) for _ in range(2)]
            writers.append(drover.Process(target=write, args=(until,)))
            for writer in writers:
                writer.start()
            wrong = 0
            while any(writer.is_alive() for writer in writers):
                got = session.recall("x")
                wrong += not (got["a"] == got["b"]).all()
            for writer in writers:
                writer.join()
            print("wrong", wrong, writers[-1].exitcode, len(session.recall("x")))
            session.keep("x", 1)
            print("bytes", session.kept()["x"] < 40_000)
            session.end()
    """)
    assert lines == ["wrong 0 0 2", "bytes True"]


def test_errors_have_remedies(name: str) -> None:
    """For invalid names, unknown names, and a second session."""
    lines = run(
        """
        import sys
        import drover

        session = drover.Session(sys.argv[1])
        session.keep("there", 1)

        def fails(what, kind, *words):
            try:
                what()
            except kind as error:
                assert all(word in str(error) for word in words), error
                assert error.remedy
            else:
                raise AssertionError("no error")

        fails(lambda: session.recall("nothing"), drover.NotFound, "'nothing'", "'there'")
        fails(lambda: session.drop("nothing"), drover.NotFound, "'nothing'", "'there'")
        fails(lambda: session.keep("", 1), drover.InvalidArgument, "not a valid name")
        fails(lambda: session.keep("x" * 200, 1), drover.InvalidArgument, "not a valid name")
        fails(lambda: session.recall("a\\nb"), drover.InvalidArgument, "not a valid name")
        fails(lambda: drover.Session("another"), drover.Busy, session.name, "another")
        fails(lambda: drover.Session("invalid name!"), drover.Error, "invalid name!")
        print(drover.Session().name == drover.Session(session.name).name == session.name)
        """,
        name,
    )
    assert lines == ["True"]


def test_unnamed_session_keeps_objects_for_the_processes_of_the_program() -> None:
    """A child recalls an array of its parent."""
    lines = run("""
        import drover

        def work():
            array = drover.Session().recall("array")
            array[5] = 7

        session = drover.Session()
        array = session.keep("array", drover.zeros(10))
        child = drover.Process(target=work)
        child.start()
        child.join()
        print(child.exitcode, array[5], repr(session))
    """)
    assert lines == ["0 7.0 <drover.Session('without a name')>"]


def test_session_can_be_left_and_ended(name: str) -> None:
    """Then sharing starts another session; arrays of the first one stay readable and are sent by value."""
    lines = run(
        """
        import sys
        import drover

        with drover.Session(sys.argv[1]) as session:
            array = session.keep("array", drover.zeros(1000))
        line = drover.Queue()
        line.put([1])
        print(line.get(), array.sum(), drover.Session().name == "")
        line.put(array)
        print(line.get().sum())
        drover.Session().close()
        session = drover.Session(sys.argv[1])
        session.end()
        line = drover.Queue()
        line.put([2])
        print(line.get())
        """,
        name,
    )
    assert lines == ["[1] 0.0 True", "0.0", "[2]"]
