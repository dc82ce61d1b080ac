"""Kills of the template and of its program at many moments: nothing hangs, and nothing is left behind."""

from __future__ import annotations

import signal
import time

import pytest
from programs import Program, run

KILLS = """
import drover, os, signal, sys, time
from drover._template import _state

def until(what):
    while not what():
        time.sleep(0.01)

def kill_template():
    pid = _state.current.pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: _state.current.pid != pid)
    return pid
"""


def test_killed_template_is_replaced_and_its_children_go_on() -> None:
    """Their exit is still noticed; the exit code is unknown unless this program killed them."""
    lines = run(
        f"""{KILLS}
def hold(event):
    event.wait()
    sys.exit(3)

event = drover.Event()
first, second = (drover.Process(target=hold, args=(event,)) for _ in range(2))
first.start(); second.start()
pool = drover.Pool(2)
pool._core.wait_ready(None)
pids = {{worker.pid for worker in pool._pool}}
old = kill_template()
print(first.is_alive(), second.is_alive(), pool.map(abs, range(4)))
third = drover.Process(target=hold, args=(event,))
third.start()
print(_state.current.pid not in (0, old))
second.kill()
second.join()
event.set()
first.join(); third.join()
print(first.exitcode, second.exitcode, third.exitcode)
os.kill(min(pids), signal.SIGKILL)
until(lambda: pool.map(abs, [1] * 4) == [1] * 4 and min(pids) not in {{worker.pid for worker in pool._pool}})
print("healed")
pool.terminate(); pool.join()
"""
    )
    printed = [line for line in lines if not line.startswith("drover[")]
    assert printed == ["True True [0, 1, 2, 3]", "True", "255 -9 3", "healed"], lines
    assert any("an unknown status" in line for line in lines), lines


def test_order_of_a_killed_template_is_served_by_the_next() -> None:
    """The template is stopped, so that the order stays unanswered, then killed."""
    lines = run(
        f"""{KILLS}
import threading
drover.warm_up()
os.kill(_state.current.pid, signal.SIGSTOP)
child = drover.Process(target=print, args=("ran",))
pid = _state.current.pid
killer = threading.Timer(0.3, lambda: os.kill(pid, signal.SIGKILL))
killer.start()
child.start()
child.join()
print(child.exitcode, _state.current.pid not in (0, pid), _state.current.forks)
"""
    )
    assert lines[-2:] == ["ran", "0 True 1"], lines


def test_killed_program_ends_template_and_children() -> None:
    """Also a child that is stopped, and a worker that has closed all its descriptors."""
    source = f"""{KILLS}
def close_all(_):
    os.closerange(3, 1000)
    time.sleep(1000)

pool = drover.Pool(2)
pool.map(abs, range(2))
pool.map_async(close_all, range(1))
begun = drover.Queue()
def hold():
    begun.put(1)
    time.sleep(1000)

children = [drover.Process(target=hold) for _ in range(3)]
for child in children: child.start()
for child in children: begun.get()
os.kill(children[0].pid, signal.SIGSTOP)
print("ready", flush=True)
time.sleep(1000)
"""
    with Program(source) as program:
        program.wait_for("ready")
        program.signal(signal.SIGKILL)
        program.wait_for_all()


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15, 0.3])
def test_program_killed_at_any_time_leaves_no_process(delay: float) -> None:
    """While the template imports modules, and while it forks."""
    with Program("import drover, time\nprint('go', flush=True)\npool = drover.Pool(3)\ntime.sleep(1000)") as program:
        program.wait_for("go")
        time.sleep(delay)
        program.signal(signal.SIGKILL)
        program.wait_for_all()


def test_template_reaps_its_children_and_leaks_nothing() -> None:
    """After many children it has no zombies, no additional descriptors and no threads."""
    lines = run(
        """
        import drover, os
        from drover._template import _state

        def round():
            children = [drover.Process(target=abs, args=(1,)) for _ in range(4)]
            for child in children: child.start()
            for child in children: child.join()

        round()
        pid = _state.current.pid
        before = os.listdir(f"/proc/{pid}/fd")
        for _ in range(5): round()
        print(before == os.listdir(f"/proc/{pid}/fd"), len(before))
        print(open(f"/proc/{pid}/task/{pid}/children").read().split())
        print(len(os.listdir(f"/proc/{pid}/task")), _state.current.forks)
        """
    )
    assert lines == ["True 5", "[]", "1 24"]


def test_forked_child_of_the_program_starts_processes_of_its_own() -> None:
    """It does not use or disturb the template of its parent."""
    lines = run(
        """
        import drover, os, sys, warnings
        from drover._template import _state

        drover.warm_up()
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks in threaded programs
        before = _state.current.pid
        pid = os.fork()
        if pid == 0:
            drover.warm_up()
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
        child = drover.Process(target=print, args=("ran",))
        child.start()
        child.join()
        print(child.exitcode, _state.current.pid == before, _state.current.forks)
        """
    )
    assert lines == ["0", "ran", "0 True 1"]


FAILING = """
import drover, os, pathlib, sys, time
from drover._template import _state

folder = pathlib.Path(sys.argv[0]).parent
starts = str(folder / "starts")
(folder / "ends_at_once.py").write_text(f"import os\\nopen({starts!r}, 'a').write('x')\\nos._exit(3)")
drover.set_preload(["ends_at_once"])

def report(begin):
    starts = (folder / "starts").stat().st_size
    is_calm = time.process_time() - begin < 10
    print("=", starts, is_calm, _state.current.wait_ready(None).name)
"""


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("print(drover.warm_up())", "False"),
        ("child = drover.Process(target=print, args=('ran',)); child.start(); child.join()", "ran"),
        ("pool = drover.Pool(2); print(pool.map(abs, [-1, 2])); pool.terminate(); pool.join()", "[1, 2]"),
    ],
    ids=["warm_up", "process", "pool"],
)
def test_template_whose_preload_ends_it_is_tried_three_times(use: str, expected: str) -> None:
    """Then each process is a fresh interpreter at once; nothing spins until a time limit."""
    lines = run(f"{FAILING}\nbegin = time.process_time()\n{use}\n{use}\nreport(begin)")
    assert [line for line in lines if "repeatedly ended before it was ready" in line], lines
    printed = [line for line in lines if not line.startswith("drover[")]
    assert printed == [expected, expected, "= 3 True unavailable"], lines


def test_template_killed_three_times_while_it_loads_is_done_without() -> None:
    """As by an administrator, or for lack of memory."""
    lines = run(
        """
import drover, os, pathlib, signal, sys, threading, time
from drover._template import _state

folder = pathlib.Path(sys.argv[0]).parent
(folder / "never_done.py").write_text("import time\\ntime.sleep(1000)")
drover.set_preload(["never_done"])

def kill_three():
    killed = set()
    while len(killed) < 3:
        pid = _state.current.pid if _state.current else 0
        if pid and pid not in killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)

killer = threading.Thread(target=kill_three)
killer.start()
begin = time.process_time()
for _ in range(2):
    child = drover.Process(target=print, args=("ran",))
    child.start()
    child.join()
killer.join()
print(time.process_time() - begin < 10, drover.warm_up())
"""
    )
    assert [line for line in lines if not line.startswith("drover[")] == ["ran", "ran", "True False"], lines


def test_warm_up_with_a_timeout_returns_while_the_template_loads() -> None:
    """Not yet is not never: a later call waits for the same template."""
    lines = run(
        """
import drover, pathlib, sys
from drover._template import _state

gate = pathlib.Path(sys.argv[0]).with_name("gate")
gate.with_name("slow.py").write_text(
    f"import pathlib, time\\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)"
)
print(drover.warm_up("slow", timeout=0.2), _state.current.wait_ready(0.0).name)
pid = _state.current.pid
gate.touch()
print(drover.warm_up(), _state.current.pid == pid)
"""
    )
    assert lines == ["False loading", "True True"], lines


def test_pool_can_be_ended_while_its_template_hangs() -> None:
    """Tasks with a timeout, and workers that it has already, are looked after, too."""
    lines = run(
        """
import drover, pathlib, sys, time

pathlib.Path(sys.argv[0]).with_name("never_done.py").write_text("import time\\ntime.sleep(1000)")
before = drover.Pool(1)
before.apply(abs, (1,))
drover.set_preload(["never_done"])
begin = time.monotonic()
pool = drover.Pool(2)
result = pool.apply_async(abs, (1,))
before.resize(2)
try:
    before.options(timeout=0.1, grace=0.1, worker=0).apply(time.sleep, (1000,))
except drover.Error as error:
    print(type(error).__name__)
before.terminate()
before.join()
pool.terminate()
pool.join()
print(result.ready(), time.monotonic() - begin < 100)
"""
    )
    assert lines[-1] == "True True", lines
