"""Actors: order of calls, exceptions, deaths, their end, and the workers that hold them."""

from __future__ import annotations

from programs import run

COUNTER = """
    import os, signal, time
    import drover

    class Counter:
        def __init__(self, start=0):
            if start is None:
                raise ValueError("no start")
            self.value = start

        def add(self, by, pause=0.0):
            time.sleep(pause)
            self.value += by
            return self.value

        def where(self):
            return drover.this_worker().index, os.getpid()

        def fail(self):
            raise KeyError("on purpose")

        def die(self):
            os.kill(os.getpid(), signal.SIGKILL)

        def __del__(self):
            if os.path.exists(__file__ + ".watch"):
                open(__file__ + ".gone", "a").write("gone\\n")
"""


def test_calls_run_in_order_beside_other_tasks() -> None:
    """Each actor has its own state and worker; hundreds of other functions do not evict it."""
    lines = run(
        COUNTER
        + """
    import asyncio

    with drover.Pool(2) as pool:
        one, two = pool.actor(Counter), pool.actor(Counter, start=100)
        print(one.worker, two.worker, pool.actor(Counter, worker=1).where().result()[0])
        futures = [one.add(1, pause=0.01 if n == 0 else 0) for n in range(50)]
        print([future.result() for future in futures] == list(range(1, 51)), two.add(1).result())
        for number in range(300):
            pool.apply(eval(f"lambda: {number}"))
        print(one.add(0).result(), two.add(0).result(), len({actor.where().result() for actor in (one, two)}))

        async def main():
            return await asyncio.gather(*(asyncio.wrap_future(two.add(1)) for _ in range(3)))

        print(asyncio.run(main()))
        slow, waiting = one.add(1, pause=0.5), one.add(1000)
        print(waiting.cancel(), slow.result(), one.add(0).result())
    """
    )
    assert lines == ["0 1 1", "True 101", "50 101 2", "[102, 103, 104]", "True 51 51"]


def test_exceptions_of_the_object_are_raised() -> None:
    """By methods, by missing methods, and by the constructor, whose exception every call raises."""
    lines = run(
        COUNTER
        + """
    import pickle, threading

    def outcome(future):
        try:
            return future.result()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    with drover.Pool(1) as pool:
        good, bad = pool.actor(Counter), pool.actor(Counter, None)
        print(outcome(good.fail()), outcome(good.miss()), outcome(good.add(1)), sep="; ")
        print(outcome(bad.add(1)), outcome(bad.add(1)), sep="; ")
        try:
            pickle.dumps(good)
        except TypeError as error:
            print("cannot send the actor" in str(error))
        try:
            good.add(threading.Lock())
        except TypeError:
            print("raised at once")
    try:
        print(good.add(1))
    except drover.Cancelled:
        print("Cancelled")
    """
    )
    assert lines == [
        "KeyError: 'on purpose'; AttributeError: 'Counter' object has no attribute 'miss'; 1",
        "ValueError: no start; ValueError: no start",
        "True",
        "raised at once",
        "Cancelled",
    ]


def test_death_of_the_worker_raises_or_restarts() -> None:
    """Running and later calls raise PeerLost; with restart=True the next call recreates the object."""
    lines = run(
        COUNTER
        + """
    def lost(future):
        try:
            return future.result()
        except drover.PeerLost as error:
            text = str(error)
            return "restart=True" in text, "Counter" in text, "Counter.die()" in text

    with drover.Pool(2, output="discarded") as pool:
        mortal, restarted = pool.actor(Counter, 5), pool.actor(Counter, 7, restart=True)
        print(mortal.add(1).result(), restarted.add(1).result())
        for actor in (mortal, restarted):
            died, behind = actor.die(), actor.add(1)
            print(lost(died), lost(behind), lost(actor.add(1)))
        print(pool.map(abs, [-1, -2]), pool.actor(Counter, 1, worker=0).add(1).result())
    """
    )
    assert [line for line in lines if "drover[" not in line] == [
        "6 8",
        "(False, True, True) (True, True, False) (True, True, False)",
        "(False, True, True) 8 9",
        "[1, 2] 2",
    ]


def test_object_ends_with_its_last_reference() -> None:
    """At the end of a with block, or with the actor, and not only with the worker."""
    lines = run(
        COUNTER
        + """
    open(__file__ + ".watch", "w").close()

    def await_gone(count):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if os.path.exists(__file__ + ".gone") and len(open(__file__ + ".gone").readlines()) == count:
                return True
            time.sleep(0.02)
        return False

    with drover.Pool(1) as pool:
        with pool.actor(Counter) as one:
            print(one.add(1).result())
        print(await_gone(1))
        print(pool.actor(Counter).add(2).result(), await_gone(2))  # dropped while its call ran
    """
    )
    assert lines == ["1", "True", "2 True"]


def test_call_after_the_end_raises() -> None:
    """With a message that says so, not that None has no such method."""
    lines = run(
        COUNTER
        + """
    with drover.Pool(1) as pool:
        with pool.actor(Counter) as one:
            print(one.add(1).result())
        try:
            one.add(1)
        except drover.InvalidArgument as error:
            print("Counter was called after it ended" in str(error))
    """
    )
    assert lines == ["1", "True"]
