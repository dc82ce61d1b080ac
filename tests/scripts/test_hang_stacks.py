"""scripts/hang_stacks.py on real processes, with and without debuggers."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hang_stacks
import pytest
from small_tree import SCRIPTS

SLEEPER = (
    "import subprocess, sys, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"
)


def wait_until_asleep(pid: int) -> None:
    """Return once a process sleeps."""
    while (fields := hang_stacks.stat_fields(Path("/proc", str(pid), "stat"))) is None or fields[1] != "S":
        time.sleep(0.01)


@pytest.fixture
def sleepers() -> Iterator[tuple[int, int]]:
    """Give a Python process that sleeps and its child `sleep 600`, as pids."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_until_asleep(parent.pid)
        wait_until_asleep(child)
        yield parent.pid, child
        os.kill(child, 9)
        parent.kill()


def run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the script, with another PATH if one is given."""
    environment = os.environ if path is None else {**os.environ, "PATH": path}
    command = [sys.executable, str(SCRIPTS / "hang_stacks.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def write_program(folder: Path, name: str, text: str) -> None:
    """Put a shell script on a path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_tree_of_processes_is_listed_with_states(sleepers: tuple[int, int], tmp_path: Path) -> None:
    """Both processes with their parents and wait channels, from /proc alone."""
    parent, child = sleepers
    done = run(str(parent), path=str(tmp_path))
    assert done.returncode == 0
    assert f"  pid {parent} ppid {os.getpid()} state S: " in done.stdout
    assert f"    pid {child} ppid {parent} state S: sleep 600\n" in done.stdout
    assert f"  thread {child} [sleep] state S, wchan " in done.stdout
    assert "neither gdb nor cuda-gdb is installed" in done.stdout


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_native_stacks_come_from_gdb(sleepers: tuple[int, int]) -> None:
    """The thread of `sleep` is in nanosleep; if the system forbids attaching, the hint is printed."""
    done = run(str(sleepers[1]))
    assert done.returncode == 0
    assert "nanosleep" in done.stdout
    assert "Thread 1" in done.stdout or hang_stacks.PERMISSION_HINT in done.stdout


def test_cuda_gdb_replaces_a_missing_gdb(sleepers: tuple[int, int], tmp_path: Path) -> None:
    """GPU machines often have no other debugger."""
    write_program(tmp_path, "cuda-gdb", 'echo "cuda-gdb was asked: $*"')
    done = run(str(sleepers[1]), path=str(tmp_path))
    assert f"cuda-gdb was asked: -p {sleepers[1]} -batch -nx -ex set pagination off" in done.stdout


def test_refused_debugger_leads_to_a_hint(sleepers: tuple[int, int], tmp_path: Path) -> None:
    """Containers forbid ptrace; the hint has the remedy."""
    write_program(tmp_path, "gdb", 'echo "ptrace: Operation not permitted."; exit 1')
    assert hang_stacks.PERMISSION_HINT in run(str(sleepers[1]), path=str(tmp_path)).stdout


def test_debugger_that_hangs_is_killed(sleepers: tuple[int, int], tmp_path: Path) -> None:
    """The report is still complete, and the debugger does not survive, even if it ignores SIGTERM."""
    note = tmp_path / "pid"
    write_program(tmp_path, "gdb", f"trap '' TERM; echo $$ > {note}; while :; do {shutil.which('sleep')} 1; done")
    done = run(str(sleepers[1]), "--timeout", "0.5", path=str(tmp_path))
    assert done.returncode == 0
    assert "did not finish within 0.5 s" in done.stdout
    assert not Path("/proc", note.read_text(encoding="utf-8").strip()).exists()


def test_python_stacks_come_from_py_spy(sleepers: tuple[int, int], tmp_path: Path) -> None:
    """It runs for the Python process and for no other."""
    write_program(tmp_path, "py-spy", 'echo "py-spy was asked: $*"')
    done = run(str(sleepers[0]), path=str(tmp_path))
    assert done.stdout.count("py-spy was asked: ") == 1
    assert f"py-spy was asked: dump --pid {sleepers[0]}" in done.stdout


def test_report_goes_to_a_file(sleepers: tuple[int, int], tmp_path: Path) -> None:
    """Then nothing is printed."""
    out = tmp_path / "report.txt"
    done = run(str(sleepers[1]), "--out", str(out), path=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert f"process tree of {sleepers[1]}:" in out.read_text(encoding="utf-8")


def test_process_that_is_gone_is_an_error_with_a_message() -> None:
    """A pid above the kernel's limit never exists."""
    done = run(str(2**22 + 1))
    assert done.returncode == 1
    assert done.stderr == f"hang_stacks: there is no process {2**22 + 1}: check the number\n"


def test_zombie_is_described() -> None:
    """It has no stacks, and no debugger is attached."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        done = run(str(process.pid))
    assert done.returncode == 0
    assert f"pid {process.pid} ppid {os.getpid()} state Z: [" in done.stdout
    assert "no stacks: it has ended, and its parent has not reaped it" in done.stdout


def test_process_that_ends_between_steps_is_not_an_error() -> None:
    """Every reader returns something for a process that is gone."""
    gone = 2**22 + 1
    assert hang_stacks.process_tree(gone) == []
    assert hang_stacks.thread_lines(gone) == ["  gone"]
    assert not hang_stacks.is_python(gone)
    lines = hang_stacks.describe(hang_stacks.Process(gone, 1, "S", "gone", 0), 20.0)
    assert lines[:2] == [f"== process {gone}: gone", "  gone"]
