"""Globals of functions that are sent by value: what initializers and tasks set, and what the program changes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import run

STATE = """
import drover

state = None
held = {}

def prepare(*values):
    global state
    state = values or "ready"
    held["in place"] = len(held)

def task(_):
    return state, held
"""
USE = """
import functools

def main():
    expected = [("ready", {"in place": 0})] * 3
    with drover.Pool(2, prepare) as pool:
        print(pool.map(task, range(3)) == expected, pool.map(lambda i: task(i), range(3)) == expected)
        print(pool.map(lambda _: (state, held), range(3)) == expected)
        print(pool.map(functools.partial(task), range(3)) == expected, pool.apply(task, (0,)) == expected[0])
    with drover.Pool(1, prepare, (1, 2)) as pool:
        print(pool.map(task, range(1)))
    with drover.Executor(1, initializer=prepare) as executor:
        print(executor.submit(task, 0).result() == expected[0], executor.submit(lambda: state).result())
"""
SEEN = ["True True", "True", "True True", "[((1, 2), {'in place': 0})]", "True ready"]


def test_globals_of_an_initializer_are_seen_without_a_guard() -> None:
    """By functions, lambdas and partial functions."""
    assert run(STATE + USE + "main()") == SEEN


def test_globals_of_an_initializer_are_seen_with_a_guard() -> None:
    """Also by lambdas, which are sent by value."""
    assert run(STATE + USE + 'if __name__ == "__main__": main()') == SEEN


def test_globals_of_an_initializer_are_seen_at_a_prompt() -> None:
    """Where no source can be read."""
    assert run(STATE + USE + "main()", from_stdin=True) == SEEN


def test_globals_of_an_initializer_under_the_guard_are_seen() -> None:
    """By functions that children import."""
    lines = run("""
        import drover

        state = None

        def task(_):
            return state

        if __name__ == "__main__":
            word = "ready"

            def prepare():
                global state
                state = word

            with drover.Pool(2, prepare) as pool:
                print(pool.map(task, range(2)))
    """)
    assert lines == ["['ready', 'ready']"]


def test_globals_of_an_initializer_in_another_module_are_seen(tmp_path: Path) -> None:
    """Also by lambdas there."""
    (tmp_path / "library.py").write_text(STATE + USE, encoding="utf-8")
    assert run("", start=("-c", "import library; library.main()"), cwd=tmp_path) == SEEN


def test_globals_of_functions_inside_of_functions_are_seen(tmp_path: Path) -> None:
    """They are sent by value, and belong to the module around them."""
    inner = textwrap.indent(STATE.partition("held = {}")[2], "    ")
    source = STATE + USE.replace("def main():", f"def main():\n{inner}\n")
    (tmp_path / "library.py").write_text(source, encoding="utf-8")
    assert run("", start=("-c", "import library; library.main()"), cwd=tmp_path) == SEEN


def test_tasks_see_what_tasks_have_set() -> None:
    """In the same worker; a function that was sent before keeps its state."""
    lines = run("""
        import drover

        count = 0
        seen = []

        def set_count(value):
            global count
            count = value

        def add(_):
            global count
            count += 1
            seen.append(count)
            return count

        with drover.Pool(1) as pool:
            print(pool.map(add, range(3)), pool.apply(set_count, (10,)), pool.map(add, range(2)))
            print(pool.apply(lambda: (count, seen)), count, seen)
    """)
    assert lines == ["[1, 2, 3] None [11, 12]", "(12, [1, 2, 3, 11, 12]) 0 []"]


def test_workers_see_what_the_program_changes() -> None:
    """Rebound names, containers, arrays and functions; and back again."""
    pytest.importorskip("numpy")
    lines = run("""
        import drover
        import numpy

        offset, listed, weights = 5, [], numpy.zeros(3)

        def helper(x):
            return x + offset

        def task(x):
            return helper(x), list(listed), float(weights.sum())

        with drover.Pool(1) as pool:
            print(pool.apply(task, (1,)))
            offset = 6
            print(pool.apply(task, (1,)))
            listed.append("item")
            weights += 1
            print(pool.apply(task, (1,)))

            def helper(x):
                return -offset

            print(pool.apply(task, (1,)))
            offset = 5
            listed.clear()
            print(pool.apply(task, (1,)))
    """)
    assert lines == [
        "(6, [], 0.0)",
        "(7, [], 0.0)",
        "(7, ['item'], 3.0)",
        "(-6, ['item'], 3.0)",
        "(-5, [], 3.0)",
    ]


def test_workers_see_what_a_notebook_defines_anew() -> None:
    """A class whose instance looks the same, and a function with a cache."""
    lines = run("""
        import functools
        import drover

        def define(sign):
            global Model, model, cached

            class Model:
                def __call__(self, x):
                    return sign * x

            Model.__qualname__ = "Model"

            @functools.lru_cache
            def cached(x):
                return sign * 10 * x

            cached.__wrapped__.__qualname__ = cached.__qualname__ = "cached"
            model = Model()

        def task(x):
            return model(x), cached(x)

        with drover.Pool(1) as pool:
            define(1)
            print(pool.map(task, range(3)))
            define(-1)
            print(pool.map(task, range(3)))
    """)
    assert lines == ["[(0, 0), (1, 10), (2, 20)]", "[(0, 0), (-1, -10), (-2, -20)]"]


def test_state_of_objects_is_that_of_the_worker() -> None:
    """Instances and modules that an initializer changes in place, until the program changes them."""
    pytest.importorskip("torch")
    lines = run("""
        import drover
        import torch

        class Store:
            def __init__(self):
                self.items = []

        store, layer = Store(), torch.nn.Linear(2, 2)

        def prepare():
            store.items.append("ready")
            with torch.no_grad():
                layer.bias.fill_(5)

        def task():
            return store.items, layer.bias.tolist()

        with drover.Pool(1, prepare) as pool:
            print(pool.apply(task), pool.apply(lambda: task()))
            store.items.append("new")
            print(pool.apply(task))
    """)
    expected = "(['ready'], [5.0, 5.0])"
    assert lines == [f"{expected} {expected}", "(['new'], [5.0, 5.0])"]


def test_tasks_see_the_values_of_their_own_message() -> None:
    """Also if the program has changed them while the tasks waited; and the state of the worker all the same."""
    lines = run("""
        import drover

        value, state = 0, None

        def prepare():
            global state
            state = "ready"

        def task(_):
            return value, state

        with drover.Pool(1, prepare) as pool:
            results = []
            for value in range(4):
                results.append(pool.map_async(task, range(50), chunksize=1))
            print([set(result.get()) for result in results])
    """)
    assert lines == ["[{(0, 'ready')}, {(1, 'ready')}, {(2, 'ready')}, {(3, 'ready')}]"]


def test_shared_objects_are_globals_of_by_value_functions() -> None:
    """Queues, locks and shared arrays stay the same objects; the initializer's state stays, too."""
    pytest.importorskip("numpy")
    lines = run("""
        import drover

        queue, lock, array, state = drover.Queue(), drover.Lock(), drover.zeros(5000), []

        def prepare():
            state.append("ready")

        def task(x):
            with lock:
                array[x] = x
                queue.put(list(state))

        with drover.Pool(1, prepare) as pool:
            pool.map(task, range(3))
            array[3] = 30
            pool.map(task, range(3))
        print([queue.get() for _ in range(6)] == [["ready"]] * 6, array.sum())
    """)
    assert lines == ["True 33.0"]


def test_functions_of_other_processes_keep_their_own_globals() -> None:
    """What a worker sends back changes nothing in the program."""
    lines = run("""
        import drover

        value = 1

        def make():
            global value
            value = 2
            return lambda: value

        def outer(task):
            with drover.Pool(1) as pool:
                return pool.apply(task), pool.apply(lambda: value)

        with drover.Pool(1) as pool:
            print(pool.apply(make)(), value, pool.apply(outer, (lambda: value + 10,)))
    """)
    assert lines == ["2 1 (12, 2)"]
