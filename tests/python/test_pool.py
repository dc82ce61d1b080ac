"""Pools: results, functions of every kind, errors, deaths, time limits, and clean ends."""

from __future__ import annotations

import signal

from programs import Program, run


def test_map_returns_exact_results_in_order() -> None:
    """With one task per item, with chunks, with tuples, and one by one."""
    lines = run("""
        import drover

        def square(x):
            return x * x

        def power(x, y):
            return x ** y

        if __name__ == "__main__":
            expected = [x * x for x in range(20_000)]
            with drover.Pool(3) as pool:
                print(pool.map(square, range(20_000), 1) == expected)
                print(pool.map(square, range(20_000)) == expected)
                print(pool.starmap(power, [(x, 2) for x in range(20_000)]) == expected)
                print(list(pool.imap(square, iter(range(20_000)))) == expected)
                print(sorted(pool.imap_unordered(square, range(20_000), 7)) == expected)
                print(pool.map_async(square, range(20_000), 1).get() == expected)
                print(pool.map(square, []), list(pool.imap(square, [])))
    """)
    assert lines == ["True"] * 6 + ["[] []"]


def test_functions_of_every_kind_run() -> None:
    """In a program without a guard: functions, lambdas, closures, methods and classes are sent by value."""
    lines = run("""
        import functools
        import numpy
        import drover

        print("top level")
        factor = 3
        large = numpy.arange(100_000)

        def scale(x):
            return x * factor

        def make(by):
            return lambda x: x + by

        class Counter:
            def __init__(self, start):
                self.start = start

            def add(self, x):
                self.start += 1
                return self.start + x

        with drover.Pool(2) as pool:
            print(pool.map(scale, range(4)))
            print(pool.map(make(10), range(4)), pool.map(make(20), range(4)))
            print(pool.map(Counter(100).add, [0] * 6, 1))
            print(pool.map(functools.partial(pow, 2), range(4)), pool.map(len, ["a", "bc"]))
            print(pool.map(lambda x: int(large[x]), [5, 99_999], 1))
            print(pool.apply(lambda a, *, b: a - b, (5,), {"b": 3}), type(pool.apply(Counter, (1,))) is Counter)
    """)
    assert lines == [
        "top level",
        "[0, 3, 6, 9]",
        "[10, 11, 12, 13] [20, 21, 22, 23]",
        "[101, 101, 101, 101, 101, 101]",
        "[1, 2, 4, 8] [1, 2]",
        "[5, 99999]",
        "2 True",
    ]


def test_arrays_are_sent_by_handle() -> None:
    """A task writes to the memory of the caller's array, and returned arrays are not copied again."""
    lines = run("""
        import numpy
        import drover

        def mark(array):
            array[0] = 7
            return array[1:]

        def make(size):
            return {"ones": numpy.ones(size)}

        if __name__ == "__main__":
            with drover.Pool(2) as pool:
                made = pool.apply(make, (100_000,))["ones"]
                rest = pool.apply(mark, (made,))
                print(made[0], made.sum(), len(rest), rest.sum())
                print([float(one.sum()) for one in pool.map(numpy.sqrt, [numpy.full(50_000, 4.0)] * 3)])
    """)
    assert lines == ["7.0 100006.0 99999 99999.0", "[100000.0, 100000.0, 100000.0]"]


def test_initializer_runs_once_in_each_worker() -> None:
    """Before its tasks, with shared objects as arguments; this_worker() works in it."""
    lines = run("""
        import os
        import drover

        def begin(line, value):
            global state
            state = (value, drover.this_worker().index, drover.this_worker().name, drover.this_worker().device)
            line.put(os.getpid())

        def look(_):
            return state

        if __name__ == "__main__":
            line = drover.Queue()
            with drover.Pool(2, begin, (line, "set"), devices="none") as pool:
                print(pool.wait_ready(60))
                print(sorted(pool.options(worker=w).apply(look, (0,)) for w in (0, 1)))
                print({line.get(), line.get()} == {w["pid"] for w in pool.workers()}, pool.workers()[1]["device"])
            try:
                drover.this_worker()
            except drover.NotFound:
                print("no worker here")
    """)
    assert lines == [
        "True",
        "[('set', 0, 'worker-0', 'cpu'), ('set', 1, 'worker-1', 'cpu')]",
        "True cpu",
        "no worker here",
    ]


def test_failing_initializer_is_reported_with_its_traceback() -> None:
    """After three attempts, by every task."""
    lines = run("""
        import drover

        def begin():
            raise KeyError("no such model")

        if __name__ == "__main__":
            with drover.Pool(1, begin, output="discarded") as pool:
                result = pool.apply_async(abs, (1,))
                try:
                    result.get(60)
                except drover.PeerLost as error:
                    print("LOST", "no such model" in str(error), "in begin" in str(error))
    """)
    assert "LOST True True" in lines


def test_exceptions_keep_their_type() -> None:
    """With the worker's traceback as their cause; a result that cannot be sent becomes MaybeEncodingError."""
    lines = run("""
        import threading
        import drover
        from drover.pool import MaybeEncodingError, RemoteTraceback

        class Own(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a} {b}")

        def fail(x):
            raise ZeroDivisionError(x)

        def fail_own(x):
            raise Own(x, x)

        def give_lock(x):
            return threading.Lock()

        def leave(x):
            raise SystemExit(3)

        def report(call, *args):
            try:
                call(*args)
            except BaseException as error:
                cause = error.__cause__
                print(type(error).__name__, isinstance(cause, RemoteTraceback) and "in fail" in str(cause))

        if __name__ == "__main__":
            with drover.Pool(2) as pool:
                report(pool.apply, fail, (5,))
                report(pool.map, fail, range(100), 1)
                report(next, pool.imap(fail, [1]))
                report(pool.apply, fail_own, (5,))
                report(pool.apply, give_lock, (5,))
                report(pool.apply, leave, (5,))
                report(pool.apply, abs, (threading.Lock(),))
                report(pool.map, abs, [1, 2, threading.Lock()], 1)
                print(pool.map(abs, [-1, -2]), pool.statistics()["restarts"])
                pool.close()
                report(pool.apply, abs, (1,))
    """)
    assert lines == [
        "ZeroDivisionError True",
        "ZeroDivisionError True",
        "ZeroDivisionError True",
        "Own True",
        "MaybeEncodingError False",
        "SystemExit False",
        "TypeError False",
        "TypeError False",
        "[1, 2] 0",
        "ValueError False",
    ]


def test_callbacks_run_before_waiters_wake() -> None:
    """Once for each result, good or bad."""
    lines = run("""
        import drover

        def invert(x):
            return 1 / x

        if __name__ == "__main__":
            good, bad = [], []
            with drover.Pool(2) as pool:
                for x in (1, 0, 2):
                    result = pool.apply_async(invert, (x,), callback=good.append, error_callback=bad.append)
                    result.wait()
                    print(result.ready(), result.successful())
                pool.map_async(invert, [4, 2], callback=good.append).wait()
                pool.map_async(invert, [4, 0], error_callback=bad.append).wait()
                print(good, [type(one).__name__ for one in bad])
    """)
    assert lines == [
        "True True",
        "True False",
        "True True",
        "[1.0, 0.5, [0.25, 0.5]] ['ZeroDivisionError', 'ZeroDivisionError']",
    ]


def test_results_are_right_while_workers_are_killed() -> None:
    """Workers are killed at random during a map: with retries, every result comes once."""
    lines = run("""
        import os, random, signal, threading, time
        import drover

        def slow(x):
            time.sleep(0.002)
            return x * x

        def kill_some(pool, over):
            seen = 0
            while not over.wait(random.uniform(0.02, 0.1)):
                ready = [w["pid"] for w in pool.workers() if w["is_ready"]]
                finished = pool.statistics()["finished"]
                if ready and finished > seen + 20:  # five deaths in a row, before a task starts, would be too many
                    seen = finished
                    try:
                        os.kill(random.choice(ready), signal.SIGKILL)
                    except ProcessLookupError:
                        pass

        if __name__ == "__main__":
            expected = [x * x for x in range(1500)]
            with drover.Pool(3, retry=50, output="discarded") as pool:
                over = threading.Event()
                killer = threading.Thread(target=kill_some, args=(pool, over))
                killer.start()
                print(pool.map(slow, range(1500), 1) == expected)
                print(sorted(pool.imap_unordered(slow, range(500))) == expected[:500])
                over.set()
                killer.join()
                print("RESTARTED", pool.statistics()["restarts"] > 0)
                print(pool.map(abs, [-1, -2]))
    """)
    assert [line for line in lines if "drover[" not in line] == ["True", "True", "RESTARTED True", "[1, 2]"]


def test_error_of_a_lost_task_names_task_worker_and_arguments() -> None:
    """Without retries, the task of a dead worker raises; other tasks are not affected."""
    lines = run("""
        import os, signal
        import drover

        def die(x, *args, **kwargs):
            if x == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return x

        if __name__ == "__main__":
            with drover.Pool(2) as pool:
                results = [pool.apply_async(die, (x,)) for x in range(8)]
                for result in results:
                    try:
                        print(result.get(60))
                    except drover.PeerLost as error:
                        print("LOST", "'die'" in str(error), "worker-" in str(error), "SIGKILL" in str(error))
                        print("REMEDY", error.remedy)
                for call in (lambda: pool.apply(die, (3, *"ab"), {"c": 3}), lambda: pool.map(die, range(1, 17))):
                    try:
                        call()
                    except drover.PeerLost as error:
                        print("ARGUMENTS", error.message.partition("its arguments: ")[2])
    """)
    assert [line for line in lines if "drover[" not in line] == [
        *["0", "1", "2", "LOST True True True"],
        "REMEDY if the task may be run twice, use Pool(retry=n), or pool.options(retry=n) for single calls",
        *["4", "5", "6", "7"],
        "ARGUMENTS die(3, 'a', 'b', c=3)",
        "ARGUMENTS die(3) and 1 more",
    ]


def test_task_that_exceeds_its_timeout_is_ended() -> None:
    """A task that checks is_interrupted stops by itself; another is killed with its worker."""
    lines = run("""
        import time
        import drover

        def polite():
            while not drover.this_worker().is_interrupted:
                time.sleep(0.01)
            drover.this_worker().check_interrupt()

        if __name__ == "__main__":
            with drover.Pool(1, output="discarded") as pool:
                for call, args in ((polite, ()), (time.sleep, (600,))):
                    try:
                        pool.options(timeout=0.2, grace=0.5).apply(call, args)
                    except drover.TimedOut as error:
                        print("TIMED OUT", call.__name__ in str(error), "pool.options(timeout=" in error.remedy)
                print(pool.apply(abs, (-1,)))
                result = pool.apply_async(time.sleep, (600,))
                try:
                    result.get(0.05)
                except drover.TimeoutError:
                    print("not yet", result.ready())
    """)
    assert [line for line in lines if "drover[" not in line] == [
        "TIMED OUT True True",
        "TIMED OUT True True",
        "1",
        "not yet False",
    ]


def test_ctrl_c_ends_a_map() -> None:
    """With KeyboardInterrupt; tasks that have not started never run, and the pool stays usable."""
    with Program("""
        import time
        import drover

        def begin_one(x):
            print("began", flush=True)
            time.sleep(0.2)

        if __name__ == "__main__":
            with drover.Pool(2) as pool:
                try:
                    pool.map(begin_one, range(10_000), 1)
                except KeyboardInterrupt:
                    print("interrupted")
                    print(pool.apply(abs, (-5,)))
    """) as program:
        program.wait_for("began")
        program.signal(signal.SIGINT)
        assert program.wait() == 0
        assert [line for line in program.lines() if line != "began"] == ["interrupted", "5"], program.output
        assert program.lines().count("began") < 1000


# Blocks the only worker until the program sets an event, so that submitting must wait for room.
HELD = """
    import threading
    import drover

    def pass_on(x):
        if not isinstance(x, int):
            x.wait()
        return 0

"""


def test_cancel_while_a_thread_submits() -> None:
    """Tasks not submitted yet never run, and get() does not return partial results."""
    lines = run(
        HELD
        + """
    class Item:
        def __reduce__(self):
            pickling.set()
            go_on.wait()
            return int, (1,)

    if __name__ == "__main__":
        pickling, go_on, held = threading.Event(), threading.Event(), drover.Event()
        with drover.Pool(1) as pool:
            result = pool.map_async(pass_on, [held, *range(2000), *(Item() for _ in range(100))], 1)
            held.set()
            pickling.wait()
            result.cancel()
            go_on.set()
            try:
                print(len(result.get()))
            except drover.Cancelled:
                print("cancelled")
            done = pool.apply_async(abs, (-1,))
            print(done.get(), done.cancel())
"""
    )
    assert lines == ["cancelled", "1 False"]


def test_cancelled_task_that_raises_keeps_its_exception() -> None:
    """Only Cancelled means that the task has stopped."""
    lines = run("""
        import drover

        def fail(error, began, go_on):
            began.set()
            go_on.wait()
            raise error

        if __name__ == "__main__":
            with drover.Pool(1) as pool:
                for error in (ValueError("own"), drover.Cancelled("stopped")):
                    began, go_on = drover.Event(), drover.Event()
                    result = pool.apply_async(fail, (error, began, go_on))
                    began.wait()
                    print(result.cancel())
                    go_on.set()
                    try:
                        result.get()
                    except (ValueError, drover.Cancelled) as raised:
                        print(type(raised).__name__, "interrupted" in str(raised))
    """)
    assert lines == ["False", "ValueError False", "False", "Cancelled True"]


def test_ctrl_c_while_a_result_is_unpickled_is_not_the_result() -> None:
    """The result can be read again."""
    lines = run("""
        import drover

        reads = 0

        def read():
            global reads
            reads += 1
            if reads % 2:
                raise KeyboardInterrupt
            return "value"

        class Value:
            def __reduce__(self):
                return read, ()

        def give(x):
            return Value()

        def ask(get):
            try:
                print("read", get())
            except KeyboardInterrupt:
                print("interrupted", get())

        if __name__ == "__main__":
            with drover.Pool(1) as pool:
                ask(pool.apply_async(give, (0,)).get)
                ask(pool.map_async(give, [0]).get)
                ask(pool.imap(give, [0]).next)
    """)
    assert lines == ["interrupted value", "interrupted ['value']", "interrupted value"]


def test_ctrl_c_in_an_iterator_of_items_is_raised_twice() -> None:
    """At once, and after the results of the items before it."""
    lines = run(
        HELD
        + """
    class Items:
        given = 0

        def __init__(self, held):
            self.held = held

        def __iter__(self):
            return self

        def __next__(self):
            self.given += 1
            if self.given == 3000:
                raise KeyboardInterrupt
            return self.held if self.given % 1000 == 1 else self.given

    if __name__ == "__main__":
        held = drover.Event()
        with drover.Pool(1) as pool:
            results, taken, interrupts = pool.imap(pass_on, Items(held)), 0, 0
            held.set()
            while interrupts < 2:
                try:
                    next(results)
                    taken += 1
                except KeyboardInterrupt:
                    interrupts += 1
                    print("interrupted", taken == 2999)
            print(list(results))
"""
    )
    assert lines == ["interrupted False", "interrupted True", "[]"]


def test_timeout_of_next_holds_while_another_thread_waits() -> None:
    """Although that thread has no timeout."""
    lines = run(
        HELD
        + """
    if __name__ == "__main__":
        held = drover.Event()
        with drover.Pool(1) as pool:
            results = pool.imap(pass_on, [held])
            other = threading.Thread(target=lambda: print(next(results)))
            other.start()
            other.join(0.2)
            try:
                results.next(timeout=0.05)
            except drover.TimeoutError:
                print("not yet")
            held.set()
            other.join()
            print(list(results))
"""
    )
    assert lines == ["not yet", "0", "[]"]


def test_iterators_take_items_as_needed() -> None:
    """Items may be infinite; joining the pool finishes the rest."""
    lines = run("""
        import itertools
        import drover

        if __name__ == "__main__":
            pool = drover.Pool(2)
            print(list(itertools.islice(pool.imap(abs, itertools.count()), 5)))
            rest = pool.imap(abs, range(30_000))
            print(next(rest))
            pool.close()
            pool.join()
            print(sum(rest) == sum(range(30_000)))
    """)
    assert lines == ["[0, 1, 2, 3, 4]", "0", "True"]


def test_end_of_a_program_ends_its_pools() -> None:
    """Even if they were not closed and still run tasks."""
    run("""
        import time
        import drover

        if __name__ == "__main__":
            pool = drover.Pool(2)
            pool.map_async(time.sleep, [600] * 10)
            other = drover.Pool(2)
            print(other.apply(abs, (1,)))
    """)


def test_killed_program_ends_its_workers() -> None:
    """Without a chance to clean up."""
    with Program("""
        import time
        import drover

        if __name__ == "__main__":
            with drover.Pool(2) as pool:
                pool.wait_ready()
                print("ready")
                pool.map(time.sleep, [600] * 10)
    """) as program:
        program.wait_for("ready")
        program.signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        program.wait_for_all()
