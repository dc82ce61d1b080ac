"""Waits that nobody is left to end are errors; waits that somebody may still end are not."""

from __future__ import annotations

import pytest
from programs import run

# How to make each object, and how to wait for it.
_WAITS = {
    "event": ("drover.Event()", "it.wait"),
    "semaphore": ("drover.Semaphore(0)", "it.acquire"),
    "condition": ("drover.Condition(); it.acquire()", "it.wait"),
}


@pytest.mark.parametrize("kind", _WAITS)
@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)", "pass"])
def test_wait_for_an_object_of_dead_processes_is_an_error(kind: str, end: str) -> None:
    """However the last other process ended; with a timeout the wait returns False."""
    make, wait = _WAITS[kind]
    lines = run(f"""
        import os
        import drover

        def die(it):
            {end}

        it = {make}
        child = drover.Process(target=die, args=(it,))
        child.start()
        try:
            {wait}()
        except drover.PeerLost as error:
            print("{kind}" in str(error), "would never end" in str(error), "a timeout" in str(error))
            print(f"process {{child.pid}}, which" in str(error) or "every other process" in str(error))
        child.join()
        print({wait}(timeout=0.3))
    """)
    assert lines == ["True True True", "True", "False"]


def test_error_names_the_process_that_died() -> None:
    """The last one that had the object open."""
    lines = run("""
        import os
        import drover

        def die(event):
            os.kill(os.getpid(), 9)

        event = drover.Event()
        child = drover.Process(target=die, args=(event,))
        child.start()
        try:
            event.wait()
        except drover.PeerLost as error:
            print(f"process {child.pid}, which had it open, has died" in str(error))
        child.join()
    """)
    assert lines == ["True"]


def test_join_of_a_queue_whose_consumer_ended_is_an_error() -> None:
    """It says how many objects are unfinished."""
    lines = run("""
        import drover

        def work(queue):
            queue.get()
            queue.task_done()

        queue = drover.JoinableQueue()
        child = drover.Process(target=work, args=(queue,))
        child.start()
        queue.put("finished")
        queue.put("unfinished")
        try:
            queue.join()
        except drover.PeerLost as error:
            print(str(error).split(":")[0])
        child.join()
        queue.task_done()
        queue.join()
        print("joined")
    """)
    assert lines == ["1 objects of the queue are unfinished", "joined"]


def test_death_before_the_barrier_was_opened_breaks_it() -> None:
    """In multiprocessing this waits forever."""
    lines = run("""
        import os, threading
        import drover

        class Deadly:
            def __reduce__(self):
                return os._exit, (1,)

        barrier = drover.Barrier(2)
        child = drover.Process(target=print, args=(Deadly(), barrier))
        child.start()
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            print("broken")
        child.join()
    """)
    assert lines == ["broken"]


def test_workers_that_finished_their_work_are_no_error() -> None:
    """What they did before they ended counts, in every order of events."""
    lines = run("""
        import drover

        def work(queue, event, permits, number):
            for _ in range(number):
                queue.get()
                queue.task_done()
            permits.release()
            event.set()

        for _ in range(10):
            queue, event, permits = drover.JoinableQueue(), drover.Event(), drover.Semaphore(0)
            child = drover.Process(target=work, args=(queue, event, permits, 20))
            child.start()
            for number in range(20):
                queue.put(number)
            queue.join()
            permits.acquire()
            event.wait()
            child.join()
        print("done")
    """)
    assert lines == ["done"]


@pytest.mark.parametrize("kind", _WAITS)
def test_thread_that_never_used_the_object_may_end_the_wait(kind: str) -> None:
    """Also one that starts a process which ends it."""
    make, wait = _WAITS[kind]
    lines = run(f"""
        import threading, time
        import drover

        def end(it):
            time.sleep(0.5)
            if {kind == "event"}:
                it.set()
            elif {kind == "semaphore"}:
                it.release()
            else:
                with it:
                    it.notify()

        def start_another(it):
            time.sleep(0.5)
            child = drover.Process(target=end, args=(it,))
            child.start()
            child.join()

        for target in (end, start_another):
            it = {make}
            child = drover.Process(target=print, args=("child",))
            child.start()
            child.join()
            thread = threading.Thread(target=target, args=(it,))
            thread.start()
            {wait}()
            thread.join()
            print("ended")
    """)
    assert lines == ["child", "ended"] * 2


def test_handler_of_a_signal_may_end_the_wait() -> None:
    """A service waits for SIGTERM after its processes have ended."""
    lines = run("""
        import os, signal, threading, time
        import drover

        stop = drover.Event()
        signal.signal(signal.SIGALRM, lambda *_: stop.set())
        child = drover.Process(target=print, args=("child",))
        child.start()
        child.join()
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        print(stop.wait())
    """)
    assert lines == ["child", "True"]


def test_tasks_of_a_pool_may_end_the_wait() -> None:
    """Although the worker that had the object was killed, and its replacement has not opened it yet."""
    lines = run("""
        import os, time
        import drover

        def die(event):
            os.kill(os.getpid(), 9)

        def end(event):
            time.sleep(0.5)
            event.set()

        if __name__ == "__main__":
            event = drover.Event()
            with drover.Pool(1) as pool:
                lost = pool.apply_async(die, (event,))
                pool.apply_async(end, (event,))
                print(event.wait())
                try:
                    lost.get()
                except drover.PeerLost:
                    print("lost")
    """)
    assert lines[-2:] == ["True", "lost"]


def test_object_in_a_message_may_be_used_by_its_receiver() -> None:
    """It has closed the object before, and opens it again."""
    lines = run("""
        import time
        import drover

        def serve(requests):
            requests.get()
            time.sleep(0.5)
            requests.get().set()

        requests = drover.Queue()
        child = drover.Process(target=serve, args=(requests,))
        child.start()
        gone = drover.Process(target=print, args=("gone",))
        event = drover.Event()
        gone.start()
        gone.join()
        requests.put(event)
        requests.put(event)
        print(event.wait())
        child.join()
    """)
    assert lines == ["gone", "True"]


def test_anybody_may_join_a_named_session() -> None:
    """So a wait there goes on."""
    lines = run("""
        import threading, uuid
        import drover
        from drover import _waiting

        _waiting.can_be_ended_here = lambda: False
        name = f"test-{uuid.uuid4().hex}"
        with drover.Session(name) as session:
            event = drover.Event()
            child = drover.Process(target=print, args=("child",))
            child.start()
            child.join()
            timer = threading.Timer(1.0, event.set)
            timer.start()
            print(event.wait())
            timer.join()
            session.end()
    """)
    assert lines == ["child", "True"]
