"""Standbys: what a template cannot import, because it leaves a thread, is imported in advance for the next pool."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from programs import Program, run
from test_template import LOOK, without_reserved_signals

PRELUDE = """
import drover, os, signal, sys, time
from drover import _ahead, _template
from drover._template import _state
sys.path.insert(0, {folder!r})
_template._UNFORKABLE = ("leaves_thread",)
_ahead.cores = lambda: {cores}

def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.01)

def importers():
    with open({folder!r} + "/log") as log:
        return [int(line) for line in log]

def standbys():
    pid, workers = _state.current.pid, []
    with open(f"/proc/{{pid}}/task/{{pid}}/children") as file:
        return [int(one) for one in file.read().split() if int(one) in importers()]

def is_ready(pid):
    with open(f"/proc/{{pid}}/syscall") as file:
        return len(os.listdir(f"/proc/{{pid}}/task")) == 2 and file.read().split()[0] == "7"  # poll

def await_standbys(count):
    until(lambda: len(standbys()) == count and all(map(is_ready, standbys())))
    return set(standbys())

def look_at_threads(_=None):
    import leaves_thread
    time.sleep(0.05)
    tasks = [int(one) for one in os.listdir("/proc/self/task")]
    assert any(one.name == "left" for one in leaves_thread.threading.enumerate())
    assert {{os.sched_getscheduler(one) for one in tasks}} == {{os.SCHED_OTHER}}
    assert len({{tuple(os.sched_getaffinity(one)) for one in tasks}}) == 1
    assert "output" not in os.environ.get("NOISE", "")
    return os.getpid()

def use(workers):
    with drover.Pool(workers) as pool:
        found = set()
        while len(found) < workers:
            found |= set(pool.map(look_at_threads, range(workers), chunksize=1))
    return found

import leaves_thread
"""
MODULE = """
import os, threading, time
with open(os.path.dirname(__file__) + "/log", "a") as log:
    log.write(f"{os.getpid()}\\n")
print(f"output of {os.getpid()}")
threading.Thread(target=time.sleep, args=(1000,), daemon=True, name="left").start()
"""


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the module; return the beginning of a program that imports it, on a machine with four cores."""
    monkeypatch.delenv("DROVER_START_AHEAD", raising=False)
    (tmp_path / "leaves_thread.py").write_text(MODULE)
    (tmp_path / "log").touch()
    return PRELUDE.format(folder=str(tmp_path), cores=4.0)


def shown(lines: list[str]) -> list[str]:
    """The lines that programs print on purpose."""
    return [line.removeprefix("= ") for line in lines if line.startswith("= ")]


def test_next_pool_consists_of_standbys(begin: str) -> None:
    """As many as the last pool had workers, each with the module; they print nothing while they import it."""
    lines = run(
        f"""{begin}
print("=", use(2) & set(standbys()))
ready = await_standbys(2)
print("=", use(2) == ready, len(importers()))
third = await_standbys(2)
print("=", third & ready, use(3) > third)
print("=", sorted(line for line in importers()) == sorted(set(importers())))
"""
    )
    assert shown(lines) == ["set()", "True 5", "set() True", "True"], lines
    assert sum(line.startswith("output of") for line in lines) == 1 + 2 + 1, lines  # the program's and workers' own


def test_modules_that_the_template_finds_unforkable_are_left_to_standbys(begin: str) -> None:
    """Those that `set_preload` names."""
    lines = run(
        f"""{begin}
import warnings
warnings.simplefilter("ignore")
drover.set_preload(["leaves_thread"])
_template._UNFORKABLE = ()
use(1)
ready = await_standbys(1)
print("=", use(1) == ready)
"""
    )
    assert shown(lines) == ["True"], lines


def test_there_are_not_more_than_cores(begin: str) -> None:
    """However large the last pool was."""
    lines = run(
        f"""{begin}
_ahead.cores = lambda: 2.0
use(3)
await_standbys(2)
time.sleep(0.3)
print("=", len(standbys()))
"""
    )
    assert shown(lines) == ["2"], lines


@pytest.mark.parametrize("cores", [1.0, 1.9])
def test_one_core_has_none(begin: str, cores: float) -> None:
    """They would compete with the pool."""
    lines = run(f'{begin}\n_ahead.cores = lambda: {cores}\nuse(1)\ntime.sleep(2)\nprint("=", standbys())')
    assert shown(lines) == ["[]"], lines


def test_setting_switches_them_off(begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as for the early template."""
    monkeypatch.setenv("DROVER_START_AHEAD", "0")
    lines = run(f'{begin}\nuse(1)\ntime.sleep(2)\nprint("=", standbys())')
    assert shown(lines) == ["[]"], lines


def test_unused_standbys_end(begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are made only after the next pool."""
    monkeypatch.setenv("DROVER_START_AHEAD", "1")
    lines = run(
        f"""{begin}
use(1)
old = await_standbys(1)
until(lambda: not standbys())
time.sleep(1.5)
print("=", standbys(), len(use(1) - old))
print("=", len(await_standbys(1) - old))
"""
    )
    assert shown(lines) == ["[] 1", "1"], lines


def test_killed_standby_is_not_missed(begin: str) -> None:
    """The pool forks a worker instead, and later there is another standby."""
    lines = run(
        f"""{begin}
use(2)
ready = await_standbys(2)
os.kill(min(ready), signal.SIGKILL)
found = use(2)
print("=", min(ready) in found, len(found))
for _ in range(3):
    ready = await_standbys(2)
    for pid in ready: os.kill(pid, signal.SIGKILL)
    until(lambda: not ready & set(standbys()))
    print("=", use(2) & ready)
"""
    )
    assert shown(lines) == ["False 2", *["set()"] * 3], lines


def test_standby_that_is_killed_while_it_imports_is_not_missed(begin: str, tmp_path: Path) -> None:
    """After a second failure no more are made, and pools start as before."""
    (tmp_path / "leaves_thread.py").write_text(f"{MODULE}\ntime.sleep(0.5)")
    lines = run(
        f"""{begin}
use(1)
for _ in range(2):
    until(standbys)
    killed = standbys()[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: killed not in standbys())
time.sleep(1.5)
print("=", standbys(), len(use(1)))
"""
    )
    assert shown(lines) == ["[] 1"], lines


def test_module_that_fails_or_leaves_a_file_open_has_no_standbys(begin: str, tmp_path: Path) -> None:
    """Each worker imports it for itself, as without standbys."""
    (tmp_path / "leaves_thread.py").write_text(MODULE + "file = open(__file__)\n")
    lines = run(
        f"""{begin}
print("=", len(use(1)))
until(lambda: len(importers()) == 4 and not standbys())  # the program, the worker, and two standbys that failed
time.sleep(1.5)
print("=", standbys(), len(importers()), len(use(1)))
"""
    )
    assert shown(lines) == ["1", "[] 4 1"], lines


def test_killed_template_ends_its_standbys(begin: str) -> None:
    """The next pool has a new template, and new standbys after that."""
    lines = run(
        f"""{begin}
use(1)
ready = await_standbys(1)
os.kill(_state.current.pid, signal.SIGKILL)
until(lambda: not any(os.path.exists(f"/proc/{{pid}}/exe") for pid in ready))
print("=", use(1) & ready, await_standbys(1) & ready)
"""
    )
    assert shown(lines) == ["set() set()"], lines


@pytest.mark.parametrize("moment", ["await_standbys(2)", "until(standbys)"])
def test_killed_program_leaves_no_standby(begin: str, moment: str) -> None:
    """Whether they are ready or import."""
    with Program(f'{begin}\nuse(2)\n{moment}\nprint("= go", flush=True)\ntime.sleep(1000)') as program:
        program.wait_for("= go")
        program.signal(signal.SIGKILL)
        program.wait_for_all()


def test_replaced_template_ends_its_standbys(begin: str) -> None:
    """They would lack the modules of the new one."""
    lines = run(
        f"""{begin}
use(1)
ready = await_standbys(1)
os.environ["PYTHONHASHSEED"] = "0"
print("=", use(1) & ready)
until(lambda: not any(os.path.exists(f"/proc/{{pid}}/exe") for pid in ready))
"""
    )
    assert shown(lines) == ["set()"], lines


@pytest.mark.parametrize("kind", ["worker", "process"])
def test_child_that_was_a_standby_is_like_a_fresh_interpreter(begin: str, kind: str) -> None:
    """In its descriptors, environment, signals, limits, streams and flags."""
    start = {
        "worker": "with drover.Pool(1) as pool: return pool.apply(look), pool._pool[0].pid",
        "process": "q = drover.Queue(); p = drover.Process(target=put_look, args=(q,), name='one'); p.start(); "
        "pid = p.pid; seen = q.get(); p.join(); return seen, pid",
    }
    lines = run(
        f"""{LOOK}
{begin}
def see():
    {start[kind]}

use(1)
ready = await_standbys(1)
seen, pid = see()
print("=", {{pid}} == ready)
drover.use_template(False)
print("=", json.dumps([seen, see()[0]]))
"""
    )
    found = shown(lines)
    assert found[0] == "True", lines
    standby, fresh = map(without_reserved_signals, json.loads(found[1]))
    assert standby == fresh


def test_standby_that_has_threads_may_change_its_user(begin: str) -> None:
    """The C library asks the other threads to do the same, by a signal of its own."""
    lines = run(
        f"""{begin}
def change(_=None):
    os.setgid(os.getgid())
    return os.getpid()

use(1)
ready = await_standbys(1)
with drover.Pool(1) as pool:
    print("=", {{pool.apply(change)}} == ready)
"""
    )
    assert shown(lines) == ["True"], lines
