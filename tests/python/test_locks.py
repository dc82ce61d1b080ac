"""Locks, semaphores, conditions and barriers: deaths of holders, and Ctrl-C in every wait."""

from __future__ import annotations

import signal
import threading

import drover
import pytest
from programs import Program, run


def test_lock_of_a_killed_holder_is_acquired_with_a_mark() -> None:
    """Once: the mark is gone with the next acquisition. The same for an RLock."""
    lines = run("""
        import os, signal
        import drover

        def die(lock):
            lock.acquire()
            os.kill(os.getpid(), signal.SIGKILL)

        for lock in (drover.Lock(), drover.RLock()):
            child = drover.Process(target=die, args=(lock,))
            child.start()
            child.join()
            with lock:
                print(child.exitcode, lock.acquired_after_death)
            with lock:
                print(lock.acquired_after_death)
    """)
    assert lines == ["-9 True", "False"] * 2


def test_permits_of_a_killed_process_are_released() -> None:
    """Both of them."""
    lines = run("""
        import os, signal
        import drover

        def die(permits):
            permits.acquire()
            permits.acquire()
            os.kill(os.getpid(), signal.SIGKILL)

        permits = drover.Semaphore(2)
        child = drover.Process(target=die, args=(permits,))
        child.start()
        child.join()
        print(permits.acquire(timeout=60), permits.acquire(timeout=60), permits.acquire(block=False))
    """)
    assert lines == ["True True False"]


def test_death_of_a_waiter_breaks_a_barrier() -> None:
    """So that the others do not wait forever."""
    lines = run("""
        import threading, time
        import drover

        def wait(barrier):
            barrier.wait()

        barrier = drover.Barrier(3)
        child = drover.Process(target=wait, args=(barrier,))
        child.start()
        while barrier.n_waiting == 0:
            time.sleep(0.01)
        child.kill()
        try:
            barrier.wait(60)
        except threading.BrokenBarrierError:
            print("broken", barrier.broken)
        child.join()
        barrier.reset()
        print(barrier.broken)
    """)
    assert lines == ["broken True", "False"]


def test_death_of_the_holder_wakes_waiters_of_a_condition() -> None:
    """The dead process may have made the condition true without notifying."""
    lines = run("""
        import os, signal, threading
        import drover

        def die(condition, value):
            with condition:
                value.value = 1
                os.kill(os.getpid(), signal.SIGKILL)

        condition, value = drover.Condition(), drover.Value("i", 0)
        child = drover.Process(target=die, args=(condition, value))
        with condition:
            child.start()
            print(condition.wait_for(lambda: value.value == 1, 60))
        child.join()
    """)
    assert lines == ["True"]


def test_acquiring_a_lock_twice_in_a_thread_is_an_error() -> None:
    """Instead of a deadlock; with a timeout it waits that long."""
    lock = drover.Lock()
    with lock:
        with pytest.raises(ValueError, match="deadlock"):
            lock.acquire()
        assert not lock.acquire(timeout=0.01)
        assert not lock.acquire(block=False)
    assert lock.acquire(block=False)
    lock.release()


def test_lock_can_be_released_by_another_thread() -> None:
    """As in multiprocessing; an RLock cannot."""
    lock, own = drover.Lock(), drover.RLock()
    lock.acquire()
    own.acquire()
    errors = []

    def release() -> None:
        lock.release()
        try:
            own.release()
        except (AssertionError, drover.Error) as error:
            errors.append(error)

    thread = threading.Thread(target=release)
    thread.start()
    thread.join()
    assert not lock.locked()
    assert len(errors) == 1
    own.release()


def test_releasing_too_often_is_an_error() -> None:
    """For a lock and a bounded semaphore."""
    with pytest.raises(ValueError, match="lock"):
        drover.Lock().release()
    with pytest.raises(ValueError, match="semaphore"):
        drover.BoundedSemaphore(1).release()


def test_long_waits_on_the_main_thread_miss_no_notification() -> None:
    """Such a wait checks for signals repeatedly, and a notification may come during a check."""
    lines = run("""
        import time
        import drover

        def wait(condition, waiting, woken):
            with condition:
                waiting.release()
                condition.wait()
                woken.release()

        condition, waiting, woken = drover.Condition(), drover.Semaphore(0), drover.Semaphore(0)
        children = [drover.Process(target=wait, args=(condition, waiting, woken)) for _ in range(3)]
        for child in children:
            child.start()
        for _ in children:
            waiting.acquire()
        for pause in (0.097, 0.098, 0.099, 0.1, 0.101, 0.102, 0.103):
            time.sleep(pause)
            with condition:
                time.sleep(0.05)  # a waiter that checks now finds the lock held
        with condition:
            condition.notify_all()
        for _ in children:
            print(woken.acquire(timeout=30))
        for child in children:
            child.kill()
            child.join()
    """)
    assert lines == ["True"] * 3


WAITS = {
    "lock": "lock = drover.Lock(); other(lock.acquire); wait = lock.acquire",
    "rlock": "lock = drover.RLock(); other(lock.acquire); wait = lock.acquire",
    "semaphore": "wait = drover.Semaphore(0).acquire",
    "event": "wait = drover.Event().wait",
    "barrier": "wait = drover.Barrier(2).wait",
    "condition": "condition = drover.Condition(); condition.acquire(); wait = condition.wait",
    "joinable": "queue = drover.JoinableQueue(); queue.put(1); wait = queue.join",
    "full": "queue = drover.Queue(1); queue.put(1); wait = lambda: queue.put(2)",
}


@pytest.mark.parametrize("set_up", WAITS.values(), ids=WAITS)
def test_interrupt_ends_a_wait(set_up: str) -> None:
    """With KeyboardInterrupt; the program goes on."""
    with Program(f"""
        import threading
        import drover

        def other(call):
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()

        {set_up}
        try:
            print("waiting")
            wait()
        except KeyboardInterrupt:
            print("interrupted")
    """) as program:
        program.wait_for("waiting")
        program.signal(signal.SIGINT)
        assert program.wait() == 0, program.output
        assert program.lines() == ["waiting", "interrupted"]


def test_wait_for_returns_at_once_when_the_timeout_has_passed() -> None:
    """Also for a negative timeout."""
    lines = run("""
        import drover

        condition = drover.Condition()
        with condition:
            print([condition.wait_for(lambda: False, timeout) for timeout in (-1, 0, 0.01)])
            print(condition.wait_for(lambda: 7, -1))
    """)
    assert lines == ["[False, False, False]", "7"]
