"""Objects that mean nothing in another process are refused, with what to send instead."""

from __future__ import annotations

import io
import mmap
import pickle
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import drover
import pytest
from drover import _objects
from programs import run


class Holder:
    """An object that has another."""

    def __init__(self, thing: Any) -> None:
        """Keep it."""
        self.thing = thing


def _yielding() -> Iterator[int]:
    yield 1


async def _waiting() -> None:
    pass


def _coroutine() -> Any:
    made = _waiting()
    made.close()
    return made


_referred = Holder(0)
THINGS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "text file": (lambda path: path.open(encoding="utf-8"), "send the path"),
    "written text file": (lambda path: path.open("w+", encoding="utf-8"), "send the path"),
    "binary file": (lambda path: path.open("rb"), "send the path"),
    "updated file": (lambda path: path.open("r+b"), "send the path"),
    "unbuffered file": (lambda path: path.open("rb", buffering=0), "send the path"),
    "standard input": (lambda _: sys.__stdin__, "send the path"),
    "generator": (lambda _: _yielding(), "send a list"),
    "coroutine": (lambda _: _coroutine(), "send the coroutine function"),
    "lock": (lambda _: threading.Lock(), r"use drover\.Lock\(\)"),
    "reentrant lock": (lambda _: threading.RLock(), r"use drover\.RLock\(\)"),
    "condition": (lambda _: threading.Condition(), r"use drover\.RLock\(\)"),
    "thread local": (lambda _: threading.local(), "create it in the other process"),
    "memory map": (lambda _: mmap.mmap(-1, 4096), "send the path"),
    "weak reference": (lambda _: weakref.ref(_referred), "send the object"),
    "database": (lambda _: sqlite3.connect(":memory:"), "send the path of the database"),
}


@pytest.mark.parametrize("name", THINGS)
def test_object_is_refused_with_a_remedy(name: str, tmp_path: Path) -> None:
    """Alone, inside of others, and as what a function that travels by value uses."""
    make, remedy = THINGS[name]
    path = tmp_path / "file"
    path.write_text("text", encoding="utf-8")
    thing = make(path)
    for sent in (thing, {"deep": [Holder(thing)]}, lambda: thing):
        with pytest.raises(TypeError, match=f"^cannot pickle '[^']+' object(.|\n)*what to do: {remedy}"):
            _objects.dumps(sent)


def test_what_is_a_value_is_still_sent() -> None:
    """Files in memory, and iterators over values."""
    text = _objects.loads(*_objects.dumps(io.StringIO("kept")))
    assert text.read() == "kept"
    assert list(_objects.loads(*_objects.dumps(zip([1], [2], strict=True)))) == [(1, 2)]


def test_standard_output_stands_for_that_of_the_receiver() -> None:
    """Functions of programs without a guard often write there."""
    lines = run("""
        import sys
        import drover

        output = sys.stdout
        child = drover.Process(target=lambda: print(output is sys.stdout, file=output))
        child.start()
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["True", "0"]


def test_own_reducer_of_a_program_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As registered with copyreg."""
    import copyreg  # noqa: PLC0415 (for this test alone)

    monkeypatch.setitem(copyreg.dispatch_table, mmap.mmap, lambda _: (str, ("a map",)))
    assert _objects.loads(*_objects.dumps(mmap.mmap(-1, 4096))) == "a map"


def test_queue_refuses_in_the_caller(tmp_path: Path) -> None:
    """And goes on working."""
    queue = drover.Queue()
    with (tmp_path / "file").open("w+", encoding="utf-8") as file, pytest.raises(TypeError, match="what to do"):
        queue.put(file)
    queue.put(1)
    assert queue.get() == 1
    with pytest.raises((TypeError, pickle.PicklingError)):
        queue.put(threading.Lock())


def test_processes_and_tasks_do_not_write_into_a_copy_of_a_file() -> None:
    """Their writes vanished; the call raises now, and the file is as it was."""
    lines = run("""
        import pathlib
        import sys
        import drover

        def write(file):
            file.write("written")
            file.flush()

        path = pathlib.Path(sys.argv[0]).with_name("file")
        with path.open("w+") as file, drover.Pool(1) as pool:
            for begin in (
                lambda: drover.Process(target=write, args=(file,)).start(),
                lambda: drover.Process(target=lambda: write(file)).start(),
                lambda: pool.apply(write, (file,)),
                lambda: pool.map(write, [file]),
                lambda: drover.Pool(1, write, (file,)),
            ):
                try:
                    begin()
                    print("= not refused")
                except TypeError as error:
                    print("=", str(error).splitlines()[0].partition("; it is ")[0].replace(str(path), "PATH"))
        print(repr(path.read_text()))
    """)
    assert lines == ["= cannot pickle '_io.TextIOWrapper' object: the open file 'PATH'"] * 5 + ["''"], lines
