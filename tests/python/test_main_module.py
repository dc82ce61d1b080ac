"""The main module: however a program is started, its processes have what it has defined."""

from __future__ import annotations

import textwrap
import zipapp
from pathlib import Path

import pytest
from drover import _main_source
from programs import run

# A program whose guard is indented by what replaces GUARD.
PROGRAM = """
import drover

class Point:
    def __init__(self, x):
        self.x = x

def shift(point):
    return Point(point.x + by())

def by():
    return 10

def main():
    with drover.Pool(2) as pool:
        print([point.x for point in pool.map(shift, map(Point, range(3)))])
        print({type(point) for point in pool.map(shift, map(Point, range(3)))} == {Point})
    results = drover.Queue()
    child = drover.Process(target=lambda: results.put(shift(Point(1)).x))
    child.start()
    print(results.get())
    child.join()
    print(child.exitcode)
"""
GUARDED = PROGRAM + '\nif __name__ == "__main__":\n    main()\n'
BARE = PROGRAM + "\nmain()\n"
PRINTED = ["[10, 11, 12]", "True", "11", "0"]


@pytest.mark.parametrize("source", [GUARDED, BARE], ids=["guard", "no guard"])
@pytest.mark.parametrize("kind", ["-m package", "-m package.module", "-m module", "folder", "archive"])
def test_program_may_be_started_in_any_way(kind: str, source: str, tmp_path: Path) -> None:
    """As a package, a module, a folder and an archive, with and without a guard."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    for path in (package / "__main__.py", package / "module.py", tmp_path / "module.py"):
        path.write_text(source, encoding="utf-8")
    zipapp.create_archive(package, tmp_path / "app.pyz")
    starts = {"folder": ("package",), "archive": ("app.pyz",)}
    assert run("", start=starts.get(kind, tuple(kind.split())), cwd=tmp_path) == PRINTED


def test_functions_of_a_package_that_is_run_import_their_neighbours(tmp_path: Path) -> None:
    """By relative imports, and they know their file."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("VALUE = 7\n", encoding="utf-8")
    (package / "__main__.py").write_text(
        textwrap.dedent("""
            import os
            import drover

            def work():
                from .other import VALUE
                return VALUE, os.path.basename(__file__), __name__

            with drover.Pool(1) as pool:
                print(pool.apply(work))
        """),
        encoding="utf-8",
    )
    assert run("", start=("-m", "package"), cwd=tmp_path) == ["(7, '__main__.py', '__main__')"]


def test_names_defined_under_the_guard_are_sent() -> None:
    """Functions, classes, their instances and what depends on them, through pools, processes and queues."""
    lines = run("""
        import collections
        import drover

        class Base:
            def double(self):
                return 2 * self.x

        def check(thing):
            return isinstance(thing, Point), isinstance(thing, Base), thing.double()

        if __name__ == "__main__":
            def add(x):
                return x + 1

            class Point(Base):
                def __init__(self, x):
                    self.x = x

            Pair = collections.namedtuple("Pair", "a b")
            with drover.Pool(2) as pool:
                print(pool.map(add, range(3)), [type(made) is Point for made in pool.map(Point, range(2))])
                print(pool.map(check, [Point(1)]), pool.apply(Pair, (1, 2)) == Pair(1, 2))
            with drover.Executor(1) as executor:
                print(executor.submit(add, 1).result())
            inbox, outbox = drover.Queue(), drover.Queue()
            child = drover.Process(target=lambda: outbox.put(inbox.get().double()))
            child.start()
            inbox.put(Point(21))
            print(outbox.get())
            child.join()
    """)
    assert lines == ["[1, 2, 3] [True, True]", "[(True, True, 2)] True", "2", "42"]


def test_processes_of_own_classes_and_exceptions_may_be_defined_under_the_guard() -> None:
    """Also enumerations, data classes and functions with a cache, which arrive as themselves."""
    lines = run("""
        import dataclasses
        import enum
        import functools
        import drover

        class Worker(drover.Process):
            def run(self):
                results.put(scaled(2))

        @functools.lru_cache
        def scaled(x):
            return x * scale

        def fail():
            raise Failure("why", 3)

        if __name__ == "__main__":
            scale, results = 10, drover.Queue()

            class Other(Worker):
                def run(self):
                    results.put(self.name)

            class Failure(Exception):
                def __init__(self, why, number):
                    super().__init__(why, number)
                    self.number = number

            class Kind(enum.Enum):
                ONE = 1

            @dataclasses.dataclass
            class Row:
                kind: Kind

            for child in (Worker(), Other(name="other")):
                child.start()
                print(results.get())
                child.join()
            with drover.Pool(1) as pool:
                print(pool.map(scaled, [1, 2]), pool.apply(lambda row: row == Row(Kind.ONE), (Row(Kind.ONE),)))
                try:
                    pool.apply(fail)
                except Failure as failure:
                    print(failure.number)
    """)
    assert lines == ["20", "other", "[10, 20] True", "3"]


def test_globals_set_under_the_guard_are_seen() -> None:
    """Those that are set there, changed there, or set by a function that is called from there."""
    lines = run("""
        import drover

        factor = None

        def work(x):
            return (x + OFFSET) * factor

        def through(x):
            return work(x) + limit

        def main():
            global limit
            limit = 1000
            with drover.Pool(2) as pool:
                print(pool.map(work, range(3)), pool.map(through, range(3)))

        if __name__ == "__main__":
            OFFSET, factor = 5, 10
            main()
    """)
    assert lines == ["[50, 60, 70] [1050, 1060, 1070]"]


def test_what_children_can_import_is_not_sent_by_value() -> None:
    """So classes are the same ones, and state of the module is that of the process."""
    lines = run("""
        import os
        import pickle
        import drover
        from drover import _objects

        made_by = os.getpid()

        class Point:
            pass

        def kind():
            return Point

        def where(_):
            return made_by == os.getpid()

        if __name__ == "__main__":
            made = [number for number in range(3)]
            print([b"cloudpickle" in _objects.dumps(thing)[0] for thing in (where, Point(), Point)])
            with drover.Pool(1) as pool:
                print(pool.map(where, made), pool.apply(kind) is Point)
                print(pool.apply(lambda: isinstance(Point(), kind())))
    """)
    assert lines == ["[False, False, False]", "[True, True, True] True", "True"]


def test_value_that_cannot_be_sent_hinders_no_function() -> None:
    """A function that only mentions such a global of the guard runs as before."""
    lines = run("""
        import threading
        import drover

        def work(x):
            if x < 0:
                lock.acquire()
            return -x

        if __name__ == "__main__":
            lock = threading.Lock()
            with drover.Pool(1) as pool:
                print(pool.map(work, range(3)))
    """)
    assert lines == ["[0, -1, -2]"]


GUARD = 'if __name__ == "__main__": '
SOURCES = {
    "x = 1": None,
    'if __name__ != "__main__":\n    raise ImportError\nx = 1': None,
    GUARD + "run()": set(),
    "def f(): pass\n" + GUARD + "f()": set(),
    "def f(): return a\ndef g(): return f()\ndef h(a): return a\n" + GUARD + "a = 1": {"a", "f", "g"},
    'if __name__ != "__main__":\n    a = 1\nelse:\n    b = 2': {"b"},
    'if "__main__" == __name__ and x:\n    import os.path as p, sys': {"p", "sys"},
    "try:\n    " + GUARD + "\n        with a as b: pass\nfinally:\n    c = 1": {"b"},
    GUARD + "\n    for i in [j for j in k if (l := j)]:\n        def f(m): n = m": {"i", "l", "f"},
    "def f():\n    global a, b\n    a = 1\n    g()\ndef g():\n    global c\n    c = 1\n" + GUARD + "f()": set("acfg"),
    "def f():\n    global a\n    a = 1\n" + GUARD + "use(f)": set(),
    "class C:\n    def m(self):\n        global a\n        a = 1\n" + GUARD + "C().m()": {"a", "C"},
    "def f():\n    def g():\n        global a\n        a = 1\n" + GUARD + "asyncio.run(f())": {"a", "f"},
    "class C:\n    def m(self): return [a for _ in b]\nc = C()\ndef f(): return c\n" + GUARD + "a = 1": set("aCcf"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_missing_names_are_found_in_the_source(source: str) -> None:
    """Those that the guard sets, and those that depend on them."""
    found = _main_source.read(source, "program.py")
    assert found is not None
    assert (set(found.missing) if found.has_guard else None) == SOURCES[source]


def test_invalid_source_is_not_read() -> None:
    """Such as a compiled file."""
    assert _main_source.read(b"\0", "program.py") is None
    assert _main_source.read("if", "program.py") is None
