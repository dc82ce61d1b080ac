"""Named sessions: objects kept by one program are there for the next, however the first one ended."""

from __future__ import annotations

import signal
import subprocess
import sys
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
    """Nor do the parts of an object left by a program that died during keep."""
    lines = run(
        """
        import sys
        import numpy as np
        import drover

        session = drover.Session(sys.argv[1])
        for number in range(3):
            kept = session.keep("a", {"large": np.full(100_000, number), "small": np.zeros(3)})
        print(session.recall("a")["large"][0], len(session._core.kept()), session.kept()["a"] >= 800_000)
        # A part as left by a program that died before it replaced the name.
        session._core.keep("a#0123456789abcdef.0", drover._core.empty(session._core, "uint8", [100]))
        print(session.recall("a")["large"][0], list(session.kept()))
        session.keep("a", 1)
        print(session.recall("a"), [info["name"] for info in session._core.kept()])
        print(kept["large"][0])
        session.drop("a")
        print(session._core.kept())
        """,
        name,
    )
    assert lines == ["2 3 True", "2 ['a']", "1 ['a']", "2", "[]"]


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
