"""The concurrent.futures executor: futures, shutdown, deaths, and asyncio."""

from __future__ import annotations

from programs import run


def test_futures_have_results_and_errors() -> None:
    """As with any executor: waited for, in the order of completion, and by map."""
    lines = run("""
        from concurrent import futures
        import drover

        def invert(x, *, by=1):
            return by / x

        def add(a, b):
            return a + b

        if __name__ == "__main__":
            with drover.Executor(2) as executor:
                all_of = [executor.submit(invert, x, by=2) for x in (1, 0, 2)]
                print(sorted(f.result() for f in futures.as_completed(all_of) if f.exception() is None))
                print(type(all_of[1].exception()).__name__, type(all_of[1].exception().__cause__).__name__)
                print(list(executor.map(add, range(100), range(100))) == [2 * x for x in range(100)])
                print(list(executor.map(add, range(100), range(100), chunksize=9)) == [2 * x for x in range(100)])
                print(executor.submit(lambda: "lambda").result())
                print(isinstance(executor, futures.Executor), isinstance(all_of[0], futures.Future))
            try:
                executor.submit(abs, 1)
            except RuntimeError as error:
                print(error)
    """)
    assert lines == [
        "[1.0, 2.0]",
        "ZeroDivisionError RemoteTraceback",
        "True",
        "True",
        "lambda",
        "True True",
        "cannot schedule new futures after shutdown",
    ]


_NOT_SENT = """
import sys, threading
import drover
from drover.pool import RemoteTraceback

class NotSent(Exception):
    pass

class Twice(Exception):
    def __init__(self, a, b):
        super().__init__(a)

class Bad:
    def __init__(self, error):
        self.error = error
    def __reduce__(self):
        raise self.error

class BadError(Exception):
    def __reduce__(self):
        raise NotSent("an error")

class Endless(Exception):
    def __reduce__(self):
        raise Endless("again")

def give(kind):
    if kind == "lock":
        return threading.Lock()
    return Bad(NotSent("a result")) if kind == "bad" else Bad(Twice(1, 2))

def fail(kind):
    raise kind("of the call")

def report(call, *args):
    try:
        print(call(*args))
    except Exception as error:
        where = str(error.__cause__) if isinstance(error.__cause__, RemoteTraceback) else ""
        text = " ".join([str(error), *getattr(error, "__notes__", ())])
        is_noted = sys.version_info < (3, 11) or "cannot send the" in text or "Error sending result" in text
        print(type(error).__name__, "__reduce__" in where, "BadError: of the call" in where, is_noted)

if __name__ == "__main__":
    with drover.Executor(2) as executor:
        executor._pool.wait_ready()
        pids = [worker["pid"] for worker in executor.workers()]
        report(executor.submit(give, "lock").result)
        report(executor.submit(give, "bad").result)
        report(list, executor.map(give, ["bad"] * 2))
        report(list, executor.map(give, ["bad"] * 4, chunksize=2))
        report(executor.submit(fail, BadError).result)
        report(executor.submit(give, "twice").result)
        report(executor.submit(fail, Endless).result)
        report(executor.submit(abs, -3).result)
        print(pids == [worker["pid"] for worker in executor.workers()])
"""


def test_result_that_cannot_be_sent_raises_the_error_of_pickling() -> None:
    """As in concurrent.futures. For an exception that cannot be sent, its traceback is the cause."""
    lines = run(_NOT_SENT)
    assert lines == [
        "TypeError False False True",
        "NotSent True False True",
        "NotSent True False True",
        "NotSent True False True",
        "NotSent True True True",
        "Twice True False True",
        "MaybeEncodingError True False True",
        "3",
        "True",
    ]


def test_death_of_a_worker_fails_only_its_task() -> None:
    """Other calls return results, and new calls are accepted."""
    lines = run("""
        import os, signal
        import drover

        def die(x):
            if x == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return x

        if __name__ == "__main__":
            with drover.Executor(2) as executor:
                all_of = [executor.submit(die, x) for x in range(10)]
                print([f.exception() is None and f.result() for f in all_of])
                print(isinstance(all_of[5].exception(), drover.PeerLost))
                print(executor.submit(abs, -3).result())
                try:
                    print(list(executor.map(die, range(10))))
                except drover.PeerLost:
                    print("lost in map")
            with drover.Executor(1, retry=1) as executor:
                first = executor.submit(die, 5)
                print(isinstance(first.exception(), drover.PeerLost), executor._pool.statistics()["retried"])
    """)
    assert [line for line in lines if "drover[" not in line] == [
        "[0, 1, 2, 3, 4, False, 6, 7, 8, 9]",
        "True",
        "3",
        "lost in map",
        "True 1",
    ]


def test_killed_worker_is_replaced() -> None:
    """In the scenario of CPython's test_killed_child, which breaks the standard executor."""
    lines = run("""
        import os, signal, time
        from concurrent.futures.process import BrokenProcessPool
        import drover

        if __name__ == "__main__":
            with drover.Executor(1) as executor:
                sleeping = executor.submit(time.sleep, 300)
                while not sleeping.running():
                    time.sleep(0.01)
                killed = executor.workers()[0]["pid"]
                os.kill(killed, signal.SIGTERM)
                error = sleeping.exception()
                print(isinstance(error, drover.PeerLost), isinstance(error, BrokenProcessPool))
                print([executor.submit(pow, 2, x).result() for x in range(8)])
                print(executor.submit(os.getpid).result() == killed)
    """)
    assert [line for line in lines if "drover[" not in line] == ["True True", str([2**x for x in range(8)]), "False"]


def test_shutdown_that_cancels_keeps_one_call_per_worker() -> None:
    """The oldest calls, whose workers are starting, still return their results."""
    lines = run("""
        import time
        import drover

        if __name__ == "__main__":
            executor = drover.Executor(3, initializer=time.sleep, initargs=(0.3,))
            all_of = [executor.submit(abs, -x) for x in range(20)]
            mapped = executor.map(abs, range(5))
            executor.shutdown(cancel_futures=True)
            print([future.cancelled() or future.result() for future in all_of])
            print(executor._pool.statistics()["failed"])
    """)
    assert lines == [str([0, 1, 2, *[True] * 17]), "22"]


def test_futures_can_be_cancelled_until_they_start() -> None:
    """And not after that; shutdown(cancel_futures=True) cancels the waiting ones."""
    lines = run("""
        import time
        from concurrent import futures
        import drover

        def hold(gate, begun):
            begun.set()
            gate.wait()
            return "held"

        if __name__ == "__main__":
            gate, begun = drover.Event(), drover.Event()
            with drover.Executor(1) as executor:
                first = executor.submit(hold, gate, begun)
                begun.wait()
                print(first.running())
                waiting = [executor.submit(abs, x) for x in range(20)]
                print(waiting[7].running(), waiting[7].cancel(), waiting[7].cancelled(), waiting[7].done())
                gate.set()
                print(first.result(), first.cancel(), first.cancelled())
                print(sorted(f.result() for f in futures.wait(waiting).done if not f.cancelled()))
                gate.clear()
                first = executor.submit(hold, gate, begun)
                waiting = [executor.submit(abs, x) for x in range(20)]
                executor.shutdown(wait=False, cancel_futures=True)
                gate.set()
                futures.wait(waiting)
                print(all(f.cancelled() for f in waiting), first.cancelled() or first.result())
    """)
    assert lines == [
        "True",
        "False True True True",
        "held False False",
        str([x for x in range(20) if x != 7]),
        "True held",
    ]


def test_initializer_that_fails_breaks_the_executor() -> None:
    """Waiting and later calls raise BrokenExecutor."""
    lines = run("""
        from concurrent.futures import BrokenExecutor
        import drover

        def begin():
            raise KeyError("no such model")

        if __name__ == "__main__":
            executor = drover.Executor(1, initializer=begin, output="discarded")
            for _ in range(2):
                try:
                    executor.submit(abs, 1).result()
                except BrokenExecutor as error:
                    print("BROKEN", "no such model" in str(error))
            executor.shutdown()
    """)
    assert [line for line in lines if line.startswith("BROKEN")] == ["BROKEN True"] * 2


def test_results_of_map_report_a_broken_executor_that_is_gone() -> None:
    """They do not keep a finished executor alive, and its failure is not mistaken for the death of one worker."""
    lines = run("""
        import gc, weakref
        from concurrent.futures import BrokenExecutor
        import drover

        def begin():
            raise KeyError("no such model")

        def wait_for_end(executor):
            while executor() is not None:
                gc.collect()

        if __name__ == "__main__":
            executor = drover.Executor(1, initializer=begin, output="discarded")
            results, executor = executor.map(abs, range(3)), weakref.ref(executor)
            wait_for_end(executor)
            try:
                print(list(results))
            except BrokenExecutor as error:
                print("BROKEN", "no such model" in str(error))
            executor = drover.Executor(1)
            results, executor = executor.map(abs, range(3)), weakref.ref(executor)
            wait_for_end(executor)
            print(list(results))
    """)
    assert [line for line in lines if "drover[" not in line][-2:] == ["BROKEN True", "[0, 1, 2]"]


def test_futures_can_be_awaited_in_asyncio() -> None:
    """By wrap_future and run_in_executor; cancelling an await cancels a call that has not started."""
    lines = run("""
        import asyncio
        import time
        import drover

        async def main():
            loop = asyncio.get_running_loop()
            with drover.Executor(2) as executor:
                print(await asyncio.wrap_future(executor.submit(abs, -1)))
                print(await asyncio.gather(*(loop.run_in_executor(executor, abs, -x) for x in range(5))))
                opened = drover.Event()
                busy = [executor.submit(opened.wait) for _ in range(2)]
                while not all(future.running() or future.done() for future in busy):
                    await asyncio.sleep(0.01)
                late = executor.submit(abs, 1)
                try:
                    await asyncio.wait_for(asyncio.wrap_future(late), 0.01)
                except asyncio.TimeoutError:
                    print("late", late.cancelled())
                opened.set()
                print(*[await asyncio.wrap_future(future) for future in busy])

        if __name__ == "__main__":
            asyncio.run(main())
    """)
    assert lines == ["1", "[0, 1, 2, 3, 4]", "late True", "True True"]


def test_submitted_calls_finish_before_the_program_exits() -> None:
    """Without a shutdown, with shutdown(wait=False), and when the executor was dropped."""
    lines = run("""
        import time
        import drover

        def say(text):
            time.sleep(0.1)
            print(text + "\\n", end="", flush=True)  # one write: several processes print at once

        if __name__ == "__main__":
            kept = drover.Executor(1)
            kept.submit(say, "kept")
            drover.Executor(1).submit(say, "dropped")
            other = drover.Executor(1)
            other.submit(say, "not waited for")
            other.shutdown(wait=False)
    """)
    assert sorted(lines) == ["dropped", "kept", "not waited for"]


def test_program_with_an_initializer_exits_cleanly() -> None:
    """After a shutdown, its threads are joined and nothing is printed."""
    lines = run("""
        import threading, time
        import drover

        def late():
            time.sleep(0.3)
            print("late", flush=True)

        if __name__ == "__main__":
            with drover.Executor(1, initializer=abs, initargs=(1,)) as executor:
                print(executor.submit(abs, -1).result())
            executor.shutdown()
            threading.Thread(target=late).start()
    """)
    assert lines == ["1", "late"]


def test_forked_children_do_not_touch_the_executor() -> None:
    """They exit normally while the executor exists, and it goes on."""
    lines = run("""
        import multiprocessing
        import drover

        if __name__ == "__main__":
            executor = drover.Executor(1)
            print(executor.submit(abs, -1).result())
            child = multiprocessing.get_context("fork").Process(target=abs, args=(1,))
            child.start()
            child.join()
            print(child.exitcode, executor.submit(abs, -2).result())
    """)
    assert lines == ["1", "0 2"]


def test_calls_can_be_submitted_during_a_submit() -> None:
    """By the items of map, by pickling, and by another thread while map waits for an item."""
    lines = run("""
        import threading
        import drover

        class Submits:
            def __reduce__(self):
                return int, (executor.submit(abs, -7).result(),)

        def items(done):
            yield executor.submit(abs, -1).result()
            thread.start()
            yield done.wait(30)

        def submit(done):
            executor.submit(abs, -1).result()
            done.set()

        if __name__ == "__main__":
            executor = drover.Executor(1)
            done = threading.Event()
            thread = threading.Thread(target=submit, args=(done,))
            print(list(executor.map(int, items(done))), executor.submit(abs, Submits()).result())
            executor.shutdown()
    """)
    assert lines == ["[1, 1] 7"]


def test_map_finishes_without_references_to_it() -> None:
    """When its results and the executor are dropped; shutdown(cancel_futures=True) cancels the rest."""
    lines = run("""
        from concurrent import futures
        import drover

        def drop(queue):
            drover.Executor(1).map(queue.put, range(5))

        def hold(x, gate, begun):
            begun.set()
            gate.wait()
            return x

        if __name__ == "__main__":
            queue = drover.Queue()
            drop(queue)
            print([queue.get(timeout=30) for _ in range(5)])
            gate, begun = drover.Event(), drover.Event()
            executor = drover.Executor(1)
            results = executor.map(hold, range(20), [gate] * 20, [begun] * 20)
            begun.wait()
            executor.shutdown(wait=False, cancel_futures=True)
            gate.set()
            executor.shutdown()
            print(next(results), executor._pool.statistics()["failed"])
            try:
                next(results)
            except futures.CancelledError:
                print("cancelled")
    """)
    assert lines == ["[0, 1, 2, 3, 4]", "0 19", "cancelled"]


def test_cancel_while_a_result_is_unpickled_is_refused() -> None:
    """The task has run, so its result arrives and wakes waiters."""
    lines = run("""
        import concurrent.futures, threading, time
        import drover

        begun = threading.Event()

        def read_slowly():
            begun.set()
            time.sleep(0.5)
            return "read"

        class Slow:
            def __reduce__(self):
                return read_slowly, ()

        if __name__ == "__main__":
            with drover.Executor(1) as executor:
                future = executor.submit(Slow)
                begun.wait()
                print(future.cancel(), future.running())
                print(future.result(), future.cancel(), len(concurrent.futures.wait([future], 10).done))
    """)
    assert lines == ["False False", "read False 1"]
