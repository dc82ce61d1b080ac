"""Classes that are sent by value: their attributes are those of the process that sets them."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import pytest
from cloudpickle import cloudpickle
from drover import _classes, _objects
from programs import run

CLASSES = """
import enum
import drover

class Job:
    made = 0
    def __init__(self, number):
        self.number = number
        Job.made += 1

class Config:
    path, cache = None, {}
    @classmethod
    def describe(cls):
        return cls.path, cls.cache, suffix

class Registered:
    def __init_subclass__(cls):
        registry[cls.__name__] = cls

class Color(enum.Enum):
    RED = 1

registry, suffix = {}, "a"

class First(Registered): pass
class Second(Registered): pass
"""
# Each returns what the program prints, and what it must be.
PROGRAMS = {
    "results": (
        """
        def work(job):
            Job.made = 77
            return job
        with drover.Pool(2) as pool:
            waiting = pool.map_async(work, [Job(number) for number in range(3)])
            Job.made = 100
            print([type(job) is Job for job in waiting.get()], Job.made)
        """,
        "[True, True, True] 100",
    ),
    "messages": (
        """
        def send(line):
            for number in range(3):
                line.put(Job(number))
        line = drover.Queue()
        child = drover.Process(target=send, args=(line,))
        child.start()
        for number in range(50):
            Job(number)
        got = [line.get() for _ in range(3)]
        child.join()
        print([type(job) is Job for job in got], Job.made)
        """,
        "[True, True, True] 50",
    ),
    "initializers": (
        """
        def prepare(path):
            Config.path = path
            Config.cache["ready"] = True
        with drover.Pool(1, prepare, ("/data",)) as pool:
            print(pool.map(lambda _: Config.describe(), range(2)), pool.apply(lambda: Config.describe()))
        """,
        "[('/data', {'ready': True}, 'a'), ('/data', {'ready': True}, 'a')] ('/data', {'ready': True}, 'a')",
    ),
    "tasks": (
        """
        def add(number):
            Job.made += number
            return Job.made
        with drover.Pool(1) as pool:
            print(pool.map(add, [1, 2], chunksize=1), pool.apply(add, (3,)), pool.apply(lambda: Job.made))
        """,
        "[1, 3] 6 6",
    ),
    "changes of the program": (
        """
        with drover.Pool(1) as pool:
            before = pool.apply(lambda: Config.describe())
            Config.path, Config.extra, suffix = "/later", 5, "b"
            print(before, pool.apply(lambda: (*Config.describe(), Config.extra)))
        """,
        "(None, {}, 'a') ('/later', {}, 'b', 5)",
    ),
    "registries": (
        """
        def same():
            return registry == {"First": First, "Second": Second}, Color(1) is Color.RED
        with drover.Pool(1) as pool:
            print({str(pool.apply(same)) for _ in range(3)})
        """,
        "{'(True, True)'}",
    ),
    "other children": (
        """
        def make(line):
            Job.made = 5
            line.put(Job(1))
        def take(line, answers):
            Job.made = 30
            line.get()
            answers.put(Job.made)
        line, answers = drover.Queue(), drover.Queue()
        children = [drover.Process(target=make, args=(line,)), drover.Process(target=take, args=(line, answers))]
        for child in children:
            child.start()
        print(answers.get())
        for child in children:
            child.join()
        """,
        "30",
    ),
}


@pytest.mark.parametrize("where", ["program", "prompt", "guard"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_attributes_of_classes(case: str, where: str) -> None:
    """In programs without a guard, at a prompt, and below a guard."""
    program, expected = PROGRAMS[case]
    body = "\n".join(line.removeprefix("        ") for line in program.splitlines())
    source = CLASSES + body
    if where == "guard":
        source = 'if __name__ == "__main__":\n' + "\n".join("    " + line for line in source.splitlines())
    assert run(source, from_stdin=where == "prompt") == [expected]


class SlowTable(weakref.WeakKeyDictionary[type, Any]):
    """A table whose entries take long to make."""

    def setdefault(self, key: type, default: Any = None) -> Any:
        """Leave other threads some time first."""
        time.sleep(0.3)
        return super().setdefault(key, default)


def test_threads_receive_a_class_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them gets the class before it has its attributes."""

    def made() -> type:
        class Local:
            value = 5

        return Local

    payload = _objects.dumps(made())
    for tracker in (cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID, cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS):
        tracker.clear()  # as in another process
    monkeypatch.setattr(_classes, "_received", SlowTable())
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(_objects.loads(*payload).value)) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert got == [5, 5]
