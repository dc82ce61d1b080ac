"""No process outlives its program or the keeper, whichever are killed, and however the process was started."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
from programs import Program

# A process that is to end calls `rest`, which never returns.
PROGRAM = """
    import multiprocessing
    import os
    import signal
    import subprocess
    import time

    import drover
    from drover import _session

    running = drover.Semaphore(0)

    def rest(before=None):
        if before:
            before()
        running.release()
        time.sleep(1000)

    def start(target, *args):
        child = drover.Process(target=target, args=args)
        child.start()
        return child

    def rest_with_a_child():
        start(rest)
        time.sleep(1000)

    def rest_with_a_standard_child(method):
        multiprocessing.get_context(method).Process(target=time.sleep, args=(1000,)).start()
        rest()

    def rest_stopped():
        running.release()
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1000)

    {herd}
    running.acquire()
    print("keeper", _session.current().keeper_pid)
    {end}
"""
SLEEP = "time.sleep(1000)"

HERDS = {
    "process": "child = start(rest)",
    "daemon": "child = drover.Process(target=rest, daemon=True); child.start()",
    "fresh interpreter": "drover.use_template(False); child = start(rest)",
    "manager": "manager = drover.Manager(); running.release()",
    "leader of a terminal session": "child = start(rest, os.setsid)",
    "one that closed all descriptors": "child = start(lambda: rest(lambda: os.closerange(3, 1000)))",
    "stopped": "child = start(rest_stopped)",
    "program started by a process": "child = start(lambda: rest(lambda: subprocess.Popen(['sleep', '1000'])))",
    "spawned by the standard module": "child = start(rest_with_a_standard_child, 'spawn')",
    "forked by the standard module": "child = start(rest_with_a_standard_child, 'fork')",
    "served by the standard module": "child = start(rest_with_a_standard_child, 'forkserver')",
    "grandchild": "child = start(rest_with_a_child)",
    "grandchild of a killed child": """child = start(rest_with_a_child)
    running.acquire()
    child.kill()
    child.join()
    running.release()""",
    "process of a worker": "pool = drover.Pool(1); pool.apply_async(rest_with_a_child)",
}


@contextlib.contextmanager
def running(herd: str, end: str = SLEEP) -> Iterator[tuple[Program, int]]:
    """Run a program with these processes; return it and the pid of its keeper."""
    with Program(PROGRAM.format(herd=HERDS[herd], end=end)) as program:
        program.wait_for("keeper ")
        program.wait_for("\n")
        yield program, int(next(line for line in program.lines() if line.startswith("keeper ")).split()[1])


@pytest.mark.parametrize("herd", HERDS)
def test_processes_end_when_program_and_keeper_are_killed_together(herd: str) -> None:
    """Each watches both, so nobody else is needed."""
    with running(herd) as (program, keeper):
        program.signal(signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        program.signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        program.wait_for_all()


@pytest.mark.parametrize("herd", HERDS)
def test_processes_end_with_the_program_without_the_help_of_the_keeper(herd: str) -> None:
    """The keeper is stopped, and so does not kill them."""
    with running(herd) as (program, keeper):
        os.kill(keeper, signal.SIGSTOP)
        program.signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        program.wait_for_all(keeper)
        os.kill(keeper, signal.SIGKILL)


@pytest.mark.parametrize("herd", ["process", "leader of a terminal session", "grandchild", "fresh interpreter"])
def test_processes_end_with_the_keeper_and_say_why(herd: str) -> None:
    """The program goes on; it sees that they were killed."""
    with running(herd, "child.join(); print('exit code', child.exitcode)") as (program, keeper):
        os.kill(keeper, signal.SIGKILL)
        program.wait()
        assert "exit code -9" in program.output
        assert f"this process ends because the keeper of its session, process {keeper}, has ended" in program.output
