#!/usr/bin/env python3
"""Prints what a process, its threads and all its descendants are doing: tree, wait channels, stacks.

For processes that hang. Reads /proc, then runs gdb (or cuda-gdb) for native stacks and py-spy for Python stacks if
they are installed, each with a time limit. It never hangs, and tolerates processes that end meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
READ_TIMEOUT_S = 2.0
GONE = "-"
REFUSED = ("Operation not permitted", "Could not attach", "ptrace: ")
PERMISSION_HINT = (
    "the kernel refused to attach: run as root or as the owner, run `sysctl kernel.yama.ptrace_scope=0`, "
    "or start the container with --cap-add=SYS_PTRACE"
)


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it; unreadable fields are `-`."""

    pid: int
    parent: int
    state: str
    command: str
    depth: int


def read_proc(path: Path) -> str:
    """Text of a file in /proc, or `-`. Has a time limit, since some reads wait for locks of a stuck process."""
    result: list[str] = []

    def work() -> None:
        with contextlib.suppress(OSError):
            result.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", errors="replace").strip())

    reader = threading.Thread(target=work, daemon=True)
    reader.start()
    reader.join(READ_TIMEOUT_S)
    return result[0] if result and result[0] else GONE


def stat_fields(path: Path) -> tuple[str, str, int] | None:
    """Name, state and parent from a stat file; None if the process is gone."""
    text = read_proc(path)
    name_end = text.rfind(")")
    fields = text[name_end + 1 :].split()
    if name_end < 0 or len(fields) < 2 or not fields[1].isdigit():
        return None
    return text[text.find("(") + 1 : name_end], fields[0], int(fields[1])


def snapshot() -> dict[int, tuple[str, str, int]]:
    """All current processes by pid, as (name, state, parent)."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return {pid: fields for pid in pids if (fields := stat_fields(PROC / str(pid) / "stat")) is not None}


def process_tree(root: int) -> list[Process]:
    """The process and all its descendants, parents first; empty if it is gone."""
    everything = snapshot()
    tree: list[Process] = []

    def add(pid: int, depth: int) -> None:
        name, state, parent = everything[pid]
        command = read_proc(PROC / str(pid) / "cmdline")
        tree.append(Process(pid, parent, state, f"[{name}]" if command == GONE else command, depth))
        for child in sorted(child for child, fields in everything.items() if fields[2] == pid and child != pid):
            add(child, depth + 1)

    if root in everything:
        add(root, 0)
    return tree


def thread_lines(pid: int) -> list[str]:
    """One line per thread: name, state, wait channel, and its system call if readable."""
    try:
        threads = sorted(int(entry.name) for entry in (PROC / str(pid) / "task").iterdir())
    except OSError:
        return ["  gone"]
    lines = []
    for thread in threads:
        folder = PROC / str(pid) / "task" / str(thread)
        fields = stat_fields(folder / "stat")
        state = fields[1] if fields else GONE
        wait, call = read_proc(folder / "wchan"), read_proc(folder / "syscall")
        lines.append(f"  thread {thread} [{read_proc(folder / 'comm')}] state {state}, wchan {wait}, syscall {call}")
    return lines


def run_limited(command: list[str], timeout_s: float) -> str:
    """The output of a program, which is killed with its process group after `timeout_s`."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "DEBUGINFOD_URLS": ""},  # keeps gdb from downloading symbols
        )
    except OSError as error:
        return f"{command[0]} failed to start: {error}"
    for ending in (None, signal.SIGTERM, signal.SIGKILL):
        if ending is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, ending)
        try:
            output = process.communicate(timeout=timeout_s if ending is None else 2.0)[0]
        except subprocess.TimeoutExpired:
            continue
        return output if ending is None else f"{output}\n{command[0]} did not finish within {timeout_s:g} s"
    return f"{command[0]} cannot be killed; it may be stuck in the kernel"


def native_stacks(pid: int, timeout_s: float) -> str:
    """Stacks of all threads, by gdb or cuda-gdb; without either, a line that says so."""
    debugger = shutil.which("gdb") or shutil.which("cuda-gdb")
    if debugger is None:
        return "no stacks: neither gdb nor cuda-gdb is installed: run `apt-get install gdb`"
    command = [debugger, "-p", str(pid), "-batch", "-nx", "-ex", "set pagination off", "-ex", "thread apply all bt"]
    output = run_limited(command, timeout_s).strip()
    return f"{output}\n{PERMISSION_HINT}" if any(sign in output for sign in REFUSED) else output


def is_python(pid: int) -> bool:
    """Whether a process runs a Python interpreter."""
    try:
        return Path(os.readlink(PROC / str(pid) / "exe")).name.startswith("python")
    except OSError:
        return False


def describe(process: Process, timeout_s: float) -> list[str]:
    """Everything about one process."""
    lines = [f"== process {process.pid}: {process.command}", *thread_lines(process.pid)]
    if process.state in {"Z", "X"}:
        return [*lines, "  no stacks: it has ended, and its parent has not reaped it"]
    lines.append(native_stacks(process.pid, timeout_s))
    spy = shutil.which("py-spy")
    if spy is not None and is_python(process.pid):
        lines.append(run_limited([spy, "dump", "--pid", str(process.pid)], timeout_s).strip())
    return lines


def collect(pid: int, timeout_s: float) -> str | None:
    """The whole report; None if there is no such process."""
    own = {os.getpid()}
    tree = [process for process in process_tree(pid) if process.pid not in own]
    if not tree:
        return None
    lines = [f"process tree of {pid}:"]
    for one in tree:
        wait, call = read_proc(PROC / str(one.pid) / "wchan"), read_proc(PROC / str(one.pid) / "syscall")
        indent = "  " * (one.depth + 1)
        lines.append(f"{indent}pid {one.pid} ppid {one.parent} state {one.state}: {one.command}")
        lines.append(f"{indent}  wchan {wait}, syscall {call}")
    for one in tree:
        lines += ["", *describe(one, timeout_s)]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Report on the given process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pid", type=int, help="process to report on")
    parser.add_argument("--out", type=Path, help="file to write instead of standard output")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for each debugger (default 20)")
    options = parser.parse_args(arguments)
    text = collect(options.pid, options.timeout)
    if text is None:
        print(f"hang_stacks: there is no process {options.pid}: check the number", file=sys.stderr)
        return 1
    if options.out is None:
        print(text, end="")
    else:
        options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
