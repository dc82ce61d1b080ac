"""Processes: how they start, what they run, and how they end."""

from __future__ import annotations

import signal
import time

import pytest
from programs import Program, run

# Without `if __name__ == "__main__"`: functions and classes are sent to children by value.
UNGUARDED = """
    import drover

    print("top level")
    factor = 3

    class Point:
        def __init__(self, x):
            self.x = x

    def scale(point, line):
        line.put(Point(point.x * factor))

    line = drover.Queue()
    child = drover.Process(target=scale, args=(Point(5), line))
    child.start()
    point = line.get()
    print(type(point) is Point, point.x)
    child.join()
    print(child.exitcode)
"""


@pytest.mark.parametrize("from_stdin", [False, True])
def test_program_without_a_guard_works(from_stdin: bool) -> None:
    """Its top level runs once, whether it is read from a file or from standard input."""
    assert run(UNGUARDED, from_stdin=from_stdin) == ["top level", "True 15", "0"]


def test_program_with_a_guard_is_imported_by_its_children() -> None:
    """As in multiprocessing: the top level runs in each child, under another name, and the guarded part does not."""
    lines = run("""
        import drover
        print("top level", __name__)

        def work():
            print("work", __name__)

        if __name__ == "__main__":
            child = drover.Process(target=work)
            child.start()
            child.join()
            print("exit code", child.exitcode)
    """)
    assert lines == ["top level __main__", "top level __mp_main__", "work __mp_main__", "exit code 0"]


def test_lambda_can_be_a_target() -> None:
    """Functions that cannot be imported are sent by value."""
    lines = run("""
        import drover
        greeting = "hello"
        child = drover.Process(target=lambda name: print(greeting, name), args=("child",))
        child.start()
        child.join()
    """)
    assert lines == ["hello child"]


def test_exit_codes_are_those_of_multiprocessing() -> None:
    """After a return, sys.exit with a number and a str, an exception, a signal, and os._exit."""
    lines = run("""
        import os, signal, sys
        import drover

        def fail():
            sys.stderr = open(os.devnull, "w")
            raise ValueError("no")

        def leave():
            sys.stderr = open(os.devnull, "w")
            sys.exit("text")

        targets = [
            lambda: None, lambda: sys.exit(7), leave, fail,
            lambda: os.kill(os.getpid(), signal.SIGSEGV), lambda: os._exit(9),
        ]
        children = [drover.Process(target=target) for target in targets]
        for child in children:
            child.start()
        for child in children:
            child.join()
        print([child.exitcode for child in children], drover.active_children())
    """)
    assert lines[-1] == "[0, 7, 1, 1, -11, 9] []"


def test_exception_in_a_child_is_shown_with_its_name() -> None:
    """On standard error, which it shares with its parent."""
    lines = run("""
        import drover

        def fail():
            raise ValueError("of this kind")

        child = drover.Process(target=fail, name="the unlucky one")
        child.start()
        child.join()
    """)
    assert "Process the unlucky one:" in lines
    assert lines[-1] == "ValueError: of this kind"


def test_processes_can_be_nested() -> None:
    """A child starts children, and a queue of the first process reaches the last."""
    lines = run("""
        import drover

        def work(line, depth):
            line.put((depth, drover.current_process().name, drover.parent_process().name))
            if depth < 3:
                child = drover.Process(target=work, args=(line, depth + 1), name=f"level {depth + 1}")
                child.start()
                child.join()

        line = drover.Queue()
        child = drover.Process(target=work, args=(line, 1), name="level 1")
        child.start()
        child.join()
        for _ in range(3):
            print(*line.get(timeout=60), sep=", ")
    """)
    assert lines == ["1, level 1, MainProcess", "2, level 2, level 1", "3, level 3, level 2"]


def test_daemon_is_ended_at_exit_and_others_are_joined() -> None:
    """As in multiprocessing."""
    lines = run("""
        import time
        import drover

        def sleep(started):
            started.set()
            time.sleep(1000)

        def speak():
            time.sleep(0.3)
            print("joined")

        started = drover.Event()
        daemon = drover.Process(target=sleep, args=(started,), daemon=True)
        daemon.start()
        started.wait()
        drover.Process(target=speak).start()
        print("end of the program")
    """)
    assert lines == ["end of the program", "joined"]


def test_waiting_daemon_threads_do_not_disturb_the_exit() -> None:
    """Of the program and its processes, whatever they wait for."""
    lines = run("""
        import threading, time
        import drover

        def wait_often():
            event, lock, line = drover.Event(), drover.Semaphore(0), drover.Queue()
            condition = drover.Condition()

            def wait(call):
                while True:
                    call()

            def wait_for_condition():
                with condition:
                    condition.wait(0.0005)

            for call in (
                lambda: event.wait(0.0005), lambda: lock.acquire(timeout=0.0005),
                lambda: line._core.get(0.0005), wait_for_condition,
            ):
                threading.Thread(target=wait, args=(call,), daemon=True).start()
            time.sleep(0.1)

        children = [drover.Process(target=wait_often) for _ in range(3)]
        for child in children:
            child.start()
        wait_often()
        for child in children:
            child.join()
        print([child.exitcode for child in children])
    """)
    assert lines == ["[0, 0, 0]"]


def test_process_goes_on_when_its_object_is_dropped() -> None:
    """As in multiprocessing, until the program ends."""
    lines = run("""
        import gc, time
        import drover

        def speak(line):
            time.sleep(0.3)
            line.put("still here")

        def start(line):
            drover.Process(target=speak, args=(line,)).start()

        line = drover.Queue()
        start(line)
        gc.collect()
        print(line.get(timeout=60))
    """)
    assert lines == ["still here"]


def test_process_outlives_the_thread_that_started_it() -> None:
    """The child is tied to the process, not to the thread."""
    lines = run("""
        import threading, time
        import drover

        def speak(go, line):
            go.wait()
            line.put("still here")

        go, line = drover.Event(), drover.Queue()
        child = drover.Process(target=speak, args=(go, line))
        starter = threading.Thread(target=child.start)
        starter.start()
        starter.join()
        time.sleep(0.3)
        go.set()
        print(line.get(timeout=60))
        child.join()
        print(child.exitcode)
    """)
    assert lines == ["still here", "0"]


HERD = """
    import os, signal, sys, time
    import drover

    def sleep(started):
        started.release()
        time.sleep(1000)

    def nest(started):
        drover.Process(target=sleep, args=(started,)).start()
        sleep(started)

    started = drover.Semaphore(0)
    for target in (sleep, nest):
        drover.Process(target=target, args=(started,)).start()
    for _ in range(3):
        started.acquire()
    print("started")
    time.sleep(1000)
"""


def test_killed_program_ends_all_its_processes() -> None:
    """Including grandchildren and the keeper."""
    with Program(HERD) as program:
        program.wait_for("started")
        program.signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        program.wait_for_all()


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.2, 0.4])
def test_program_killed_while_its_processes_start_leaves_none(pause: float) -> None:
    """Those that start too late say so; one that was just about to read a message has lost its session."""
    with Program("""
        import time
        import drover

        line = drover.Queue()
        print("starting")
        for _ in range(3):
            drover.Process(target=line.get).start()
        time.sleep(1000)
    """) as program:
        program.wait_for("starting")
        time.sleep(pause)
        program.signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        program.wait_for_all()
        errors = {line.partition(":")[0] for line in program.lines() if "Error" in line or "_errors" in line}
        assert errors <= {"drover._errors.PeerLost"}, program.output


def test_children_have_the_start_method_of_the_program() -> None:
    """The standard library's stays unset; the program may still set it."""
    lines = run("""
        import multiprocessing
        import drover

        drover.set_start_method("spawn")
        child = drover.Process(target=lambda: print(drover.get_start_method()))
        child.start()
        child.join()
        print(multiprocessing.get_start_method(allow_none=True))
        multiprocessing.set_start_method("forkserver")
    """)
    assert lines == ["spawn", "None"]


def test_many_threads_may_wait_for_one_process() -> None:
    """All of them get its exit code."""
    lines = run("""
        import sys
        import threading
        import drover

        def wait(child):
            child.join()
            outcomes.append((child.exitcode, child.is_alive()))

        if __name__ == "__main__":
            outcomes = []
            go_on = drover.Event()
            child = drover.Process(target=lambda: sys.exit(go_on.wait() + 2))
            child.start()
            waiting = [threading.Thread(target=wait, args=(child,)) for _ in range(8)]
            for thread in waiting:
                thread.start()
            waiting[0].join(0.2)
            go_on.set()
            for thread in waiting:
                thread.join()
            print(outcomes == [(3, False)] * 8)
    """)
    assert lines == ["True"]


def test_interrupt_ends_a_waiting_join() -> None:
    """With KeyboardInterrupt; the child goes on."""
    with Program("""
        import time
        import drover

        child = drover.Process(target=time.sleep, args=(1000,))
        child.start()
        try:
            print("waiting")
            child.join()
        except KeyboardInterrupt:
            print("interrupted", child.is_alive())
        child.terminate()
        child.join()
        print(child.exitcode)
    """) as program:
        program.wait_for("waiting")
        program.signal(signal.SIGINT)
        assert program.wait() == 0, program.output
        assert program.lines() == ["waiting", "interrupted True", "-15"]


def test_interrupt_of_the_whole_group_ends_parent_and_children() -> None:
    """As sent by Ctrl-C on a terminal."""
    with Program("""
        import os, signal, time
        import drover

        def work(started):
            try:
                started.set()
                time.sleep(1000)
            except KeyboardInterrupt:
                print("child interrupted")

        os.setpgrp()
        started = drover.Event()
        child = drover.Process(target=work, args=(started,))
        child.start()
        started.wait()
        try:
            os.killpg(0, signal.SIGINT)
            child.join()
        except KeyboardInterrupt:
            child.join()
            print("parent interrupted", child.exitcode)
    """) as program:
        assert program.wait() == 0, program.output
        assert program.lines() == ["child interrupted", "parent interrupted 0"]


def test_argument_that_cannot_be_sent_raises_at_start_and_starts_nothing() -> None:
    """The error names the type of the argument."""
    lines = run("""
        import drover
        child = drover.Process(target=print, args=((number for number in range(3)),))
        try:
            child.start()
        except TypeError as error:
            print("generator" in str(error), drover.active_children())
    """)
    assert lines == ["True []"]
