"""The early template: begun beside the program's imports, unnoticed by a program that never starts a process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Program, run
from test_template import LOOK, without_reserved_signals

NICENESS = os.nice(0)  # which a program and its processes inherit

# Watches a module of the test as it does torch, also on a machine with one core.
PRELUDE = """
import drover, os, signal, sys, threading, time
from drover import _ahead, _early, _template
from drover._template import _state
sys.path.insert(0, {folder!r})
_early._HEAVY |= {{"heavy_one"}}
_template.SAFE = (*_template.SAFE, "heavy_one", "heavy_two")
_ahead.cores = lambda: {cores}

def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.01)

def importers(name="heavy_one"):
    with open({folder!r} + "/log") as log:
        return [line.split()[1:] for line in log if line.startswith(name)]

def look(_=None):
    return [os.getppid(), os.sched_getscheduler(0), os.nice(0), "heavy_one" in sys.modules, threading.active_count()]
"""
# Tells who imports it and with which scheduling policy, and is noisy.
HEAVY = """
import os, sys, warnings
with open(os.path.dirname(__file__) + "/log", "a") as log:
    log.write(f"{__name__} {os.getpid()} {os.sched_getscheduler(0)}\\n")
print(f"output of {os.getpid()}")
warnings.warn(f"warning of {os.getpid()}")
"""


class Folder:
    """A folder with heavy modules, and the beginning of a program that imports them."""

    def __init__(self, path: Path) -> None:
        """Write the modules."""
        self.path = path
        self.write("heavy_one")
        self.write("heavy_two")
        (path / "log").touch()

    def write(self, name: str, more: str = "") -> None:
        """Write a module that does more than others."""
        (self.path / f"{name}.py").write_text(f"{HEAVY}\n{more}\n")

    def program(self, body: str, cores: float = 2.0) -> str:
        """Return a program."""
        return f"{PRELUDE.format(folder=str(self.path), cores=cores)}\n{body}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A folder with modules; the settings are the default."""
    monkeypatch.delenv("DROVER_START_AHEAD", raising=False)
    return Folder(tmp_path)


def shown(lines: list[str]) -> list[str]:
    """The lines that programs print on purpose."""
    return [line.removeprefix("= ") for line in lines if line.startswith("= ")]


def test_template_begins_beside_the_import_and_serves_the_first_pool(folder: Folder) -> None:
    """It imports at idle priority; its children are of the usual priority and print to the program's output."""
    lines = run(
        folder.program(
            """
import heavy_one
pid = _state.early.pid
until(lambda: len(importers()) == 2)
with drover.Pool(2) as pool:
    found = pool.map(look, range(2))
    pool.apply(print, ("= printed",))
    print("=", found == [[pid, os.SCHED_OTHER, os.nice(0), True, 1]] * 2)
print("=", importers() == [[str(os.getpid()), "0"], [str(pid), "5"]], _state.current.pid == pid)
"""
        )
    )
    assert shown(lines) == ["printed", "True", "True True"], lines
    assert sum(line.startswith("output of") for line in lines) == 1, lines
    assert sum("warning of" in line for line in lines) <= 2, lines  # with its source line


def test_nothing_begins_at_the_import_of_drover_or_when_a_module_is_only_looked_for(folder: Folder) -> None:
    """Nor by modules that are not heavy, or do not exist."""
    lines = run(
        folder.program(
            """
import importlib.util
_template.SAFE += ("missing_one",); _early._HEAVY |= {"missing_one"}
print("=", importlib.util.find_spec("heavy_one") is not None, _state.early)
try:
    import missing_one
except ImportError:
    print("=", _state.early)
import heavy_two
print("=", _state.early, len(os.listdir("/proc/self/task")))
"""
        )
    )
    assert shown(lines) == ["True None", "None", "None 1"], lines


def test_program_that_starts_no_process_does_not_notice(folder: Folder) -> None:
    """It has no child to wait for, no signal, no thread, and its end does not wait."""
    lines = run(
        folder.program(
            """
signals = []
signal.signal(signal.SIGCHLD, lambda *_: signals.append(1))
import heavy_one
pid = _state.early.pid
try:
    print("=", os.wait())
except ChildProcessError:
    print("= no child", len(os.listdir("/proc/self/task")))
os.kill(pid, signal.SIGKILL)
until(lambda: _state.early.has_ended)
try:
    print("=", os.wait())
except ChildProcessError:
    print("= no child", signals)
"""
        )
    )
    assert shown(lines) == ["no child 1", "no child []"], lines


@pytest.mark.parametrize("variable", ["DROVER_START_AHEAD", "DROVER_TEMPLATE"])
def test_setting_switches_it_off(folder: Folder, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Either that of the early template, or that of all templates."""
    monkeypatch.setenv(variable, "0")
    lines = run(folder.program('import heavy_one\nqueue = drover.Queue()\nprint("=", _state.early)'))
    assert shown(lines) == ["None"], lines


def test_one_core_is_not_shared_with_an_early_template(folder: Folder) -> None:
    """Nor the quota of a container that has less than two."""
    lines = run(folder.program('import heavy_one\nprint("=", _state.early)', cores=1.9))
    assert shown(lines) == ["None"], lines


def test_cores_are_those_that_the_program_may_use() -> None:
    """As set by taskset."""
    lines = run(
        "import os\nfrom drover import _ahead\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "print(_ahead.cores())"
    )
    assert float(lines[0]) <= 1.0


def test_invalid_setting_is_an_error_of_the_first_object_and_not_of_an_import(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which names the variable and its value."""
    monkeypatch.setenv("DROVER_START_AHEAD", "soon")
    lines = run(
        folder.program(
            """
import heavy_one
try:
    drover.Queue()
except drover.InvalidArgument as error:
    print("=", str(error).splitlines()[0])
"""
        )
    )
    assert "DROVER_START_AHEAD is 'soon'" in shown(lines)[0], lines


def test_first_shared_object_begins_it_for_modules_imported_earlier(folder: Folder) -> None:
    """As when drover is imported after torch."""
    lines = run(
        folder.program(
            """
_early._HEAVY -= {"heavy_one"}
import heavy_one
_early._HEAVY |= {"heavy_one"}
print("=", _state.early)
queue = drover.Queue()
until(lambda: len(importers()) == 2)
print("=", importers()[1] == [str(_state.early.pid), "5"])
"""
        )
    )
    assert shown(lines) == ["None", "True"], lines


def test_template_follows_later_imports(folder: Folder) -> None:
    """Those of large modules, in the same process."""
    lines = run(
        folder.program(
            """
import heavy_one
until(lambda: len(importers()) == 2)
import heavy_two
until(lambda: len(importers("heavy_two")) == 2)
print("=", importers("heavy_two")[1] == [str(_state.early.pid), "5"])
"""
        )
    )
    assert shown(lines) == ["True"], lines


@pytest.mark.parametrize(
    ("names", "is_used"), [(["heavy_one"], True), (["heavy_one", "heavy_two"], True), ([], False)]
)
def test_modules_that_are_named_later_are_those_of_the_pool(folder: Folder, names: list[str], is_used: bool) -> None:
    """The early template is used if it has imported nothing else."""
    lines = run(
        folder.program(
            f"""
import heavy_one
pid = _state.early.pid
until(lambda: len(importers()) == 2)
drover.set_preload({names})
with drover.Pool(1) as pool:
    print("=", pool.apply(look)[0] == pid, pool.apply(look)[3], pool.apply(loaded, ("heavy_two",)))
"""
        ).replace("def look", "def loaded(name):\n    return name in sys.modules\n\ndef look")
    )
    assert shown(lines) == [f"{is_used} {'heavy_one' in names} {'heavy_two' in names}"], lines


def test_only_the_main_process_begins_one(folder: Folder) -> None:
    """Not a forked child, a drover.Process, a worker, or a process of multiprocessing."""
    lines = run(
        folder.program(
            """
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)

def load(_=None):
    from drover import _ahead, _early, _template
    _early._HEAVY |= {"heavy_one"}
    _template.SAFE = (*_template.SAFE, "heavy_one")
    _ahead.cores = lambda: 2.0
    import heavy_one
    return _template._state.early

def show():
    print("=", load())

if __name__ == "__main__":
    pid = os.fork()
    if pid == 0:
        show()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    for context in (drover, multiprocessing.get_context("spawn")):
        child = context.Process(target=show)
        child.start()
        child.join()
    drover.use_template(False)
    with drover.Pool(1) as pool:
        print("=", pool.apply(load))
    child = drover.Process(target=show)
    child.start()
    child.join()
    drover.use_template(True)
    print("=", load() is not None)
"""
        )
    )
    assert shown(lines) == ["None"] * 5 + ["True"], lines


def test_unused_template_ends_and_the_pool_starts_another(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which imports in the usual way; no further import begins one."""
    monkeypatch.setenv("DROVER_START_AHEAD", "0.3")
    lines = run(
        folder.program(
            """
import heavy_one
old = _state.early.pid
until(lambda: _state.early.has_ended)
import heavy_two
print("=", _state.early.pid == old)
with drover.Pool(1) as pool:
    print("=", pool.apply(look)[0] == _state.current.pid != old, pool.apply(look)[1:])
"""
        )
    )
    assert shown(lines) == ["True", f"True [0, {NICENESS}, True, 1]"], lines


@pytest.mark.parametrize("when", ["at once", "importing", "imported"])
def test_killed_template_is_replaced(folder: Folder, when: str) -> None:
    """Whenever it is killed."""
    folder.write("heavy_one", "import time\nif os.sched_getscheduler(0): time.sleep(0.5)")
    wait = {
        "at once": "",
        "importing": "until(lambda: len(importers()) == 2)",
        "imported": "until(lambda: len(importers()) == 2); time.sleep(0.6)",
    }
    lines = run(
        folder.program(
            f"""
import heavy_one
old = _state.early.pid
{wait[when]}
os.kill(old, signal.SIGKILL)
with drover.Pool(2) as pool:
    print("=", pool.apply(look)[0] == _state.current.pid != old, pool.apply(look)[1:])
"""
        )
    )
    assert shown(lines) == [f"True [0, {NICENESS}, True, 1]"], lines


def test_template_that_is_killed_while_the_pool_waits_is_replaced(folder: Folder) -> None:
    """The pool waits for its import."""
    folder.write("heavy_one", "import time\nif os.sched_getscheduler(0) == 5: time.sleep(100)")
    lines = run(
        folder.program(
            """
import heavy_one
old = _state.early.pid
until(lambda: len(importers()) == 2)
killer = threading.Timer(0.5, lambda: os.kill(old, signal.SIGKILL))
killer.start()
with drover.Pool(2) as pool:
    print("=", pool.apply(look)[0] == _state.current.pid != old, pool.apply(look)[1:])
killer.join()
"""
        )
    )
    assert shown(lines) == [f"True [0, {NICENESS}, True, 1]"], lines


def test_template_that_gets_no_core_begins_again_at_normal_priority(folder: Folder) -> None:
    """If the system does not let it leave idle priority."""
    folder.write(
        "heavy_one",
        """
import time
from drover import _template_follow
_template_follow._is_starved = lambda *_, much=1.0: much == 1.0
_template_follow._Importer._raise_priority = lambda _: False
if os.sched_getscheduler(0) == 5: time.sleep(100)
""",
    )
    lines = run(
        folder.program(
            """
import heavy_one
pid = _state.early.pid
until(lambda: len(importers()) == 2)
with drover.Pool(2) as pool:
    print("=", pool.apply(look) == [pid, 0, os.nice(0), True, 1])
print("=", [policy for _, policy in importers()])
"""
        )
    )
    assert shown(lines) == ["True", "['0', '5', '0']"], lines


@pytest.mark.parametrize(
    ("more", "is_imported"),
    [
        ("import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)", True),  # possible only in the main thread
        ("import threading, time; threading.Thread(target=time.sleep, args=(100,), daemon=True).start()", False),
        ("if 'drover._template_main' in sys.modules: raise OSError('not in a template')", False),
    ],
)
def test_module_that_cannot_be_imported_early(folder: Folder, more: str, is_imported: bool) -> None:
    """The pool has it as without an early template."""
    folder.write("heavy_one", more)
    lines = run(
        folder.program(
            """
import heavy_one
until(lambda: len(importers()) == 2)
with drover.Pool(1) as pool:
    print("=", pool.apply(look)[1:], pool.apply(look)[0] == _state.current.pid)
"""
        )
    )
    assert shown(lines) == [f"[0, {NICENESS}, {is_imported}, 1] True"], lines
    assert sum(line.startswith("output of") for line in lines) == 1, lines


def test_forked_child_leaves_it_to_its_parent(folder: Folder) -> None:
    """It uses one of its own; the parent's is unharmed when the child ends or drops it."""
    lines = run(
        folder.program(
            """
import heavy_one, warnings
warnings.simplefilter("ignore", DeprecationWarning)
old = _state.early.pid
pid = os.fork()
if pid == 0:
    with drover.Pool(1) as pool:
        print("= child", pool.apply(look)[0] not in (old, os.getppid()))
    _state.early = None
    sys.exit(0)
print("=", os.waitpid(pid, 0)[1])
with drover.Pool(1) as pool:
    print("=", pool.apply(look)[0] == old)
"""
        )
    )
    assert shown(lines) == ["child True", "0", "True"], lines


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.4])
def test_killed_program_leaves_no_template(folder: Folder, delay: float) -> None:
    """While it starts, imports, or waits; also in the middle of an import that does not return."""
    folder.write("heavy_one", "import time\nif os.sched_getscheduler(0) == 5: time.sleep(1000)")
    body = f"import heavy_one\ntime.sleep({delay})\nprint('= go', _state.early is not None, flush=True)"
    with Program(folder.program(f"{body}\ntime.sleep(1000)")) as program:
        program.wait_for("= go True")
        program.signal(signal.SIGKILL)
        program.wait_for_all()


def test_program_that_runs_another_leaves_no_template(folder: Folder) -> None:
    """After exec nobody could use it; the leftovers are checked."""
    lines = run(
        folder.program('import heavy_one\nprint("= go", flush=True)\nos.execv("/bin/sh", ["sh", "-c", "echo = ran"])')
    )
    assert shown(lines) == ["go", "ran"], lines


@pytest.mark.parametrize("kind", ["worker", "process"])
def test_child_of_an_early_template_is_like_a_fresh_interpreter(folder: Folder, kind: str) -> None:
    """In its descriptors, environment, signals, limits, streams and flags."""
    start = {
        "worker": "with drover.Pool(1) as pool: return pool.apply(look)",
        "process": "q = drover.Queue(); p = drover.Process(target=put_look, args=(q,), name='one'); p.start(); "
        "seen = q.get(); p.join(); return seen",
    }
    body = f"""
{LOOK}
def see():
    {start[kind]}

import heavy_one
pid = _state.early.pid
seen = see()
print("=", _state.current.pid == pid)
drover.use_template(False)
print("=", json.dumps([seen, see()]))
"""
    found = shown(run(folder.program(body)))
    assert found[0] == "True"
    early, fresh = map(without_reserved_signals, json.loads(found[1]))
    assert early == fresh


def test_child_of_an_early_template_may_change_its_user(folder: Folder) -> None:
    """Although the template had a thread: the C library prepares for that only once."""
    lines = run(
        folder.program(
            """
def change(_=None):
    thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
    thread.start()
    os.setgid(os.getgid())
    return thread.is_alive()

import heavy_one
with drover.Pool(1) as pool:
    print("=", pool.apply(change))
"""
        )
    )
    assert shown(lines) == ["True"], lines


def test_policies_are_as_the_kernel_numbers_them() -> None:
    """The tests above write them as numbers."""
    assert (os.SCHED_OTHER, os.SCHED_IDLE) == (0, 5)
