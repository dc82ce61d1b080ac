"""The pools of this user, on hand-made boards whose workers are arbitrary processes."""

import fcntl
import json
import mmap
import os
import pty
import signal
import struct
import subprocess
import time

import pytest
from drover_tool import WATCHDOG

MAGIC = 0x447261_6F42_7644
WORKERS = TASKS = 256
HEAD = struct.Struct("<QIIIIQ48s5Q")
RUNNING, IDLE = 3, 2
MFD_ALLOW_SEALING, ALL_SEALS = 2, 7


def board_size() -> tuple[int, int]:
    """The offset of the first worker and the size of a worker, as the C++ compiler lays them out."""
    first = (HEAD.size + TASKS * 64 + 63) // 64 * 64
    return first, 64 * 4 + 64 * 2 + (6 * 4 + 64 * 8 + 63) // 64 * 64


class Board:
    """A board in a memory file that this process has open."""

    def __init__(self, name: str, magic: int = MAGIC, version: int = 2):
        """Create a board without workers."""
        self.first, self.stride = board_size()
        self.file = os.memfd_create("drover-board", os.MFD_CLOEXEC | MFD_ALLOW_SEALING)
        size = self.first + WORKERS * self.stride
        os.ftruncate(self.file, size)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, ALL_SEALS)
        self.memory = mmap.mmap(self.file, size)
        self.count = 0
        self.started = time.monotonic_ns() - 60 * 10**9
        self.head = [magic, version, 0, os.getpid(), 1, self.started, name.encode(), 3, 1, 7, 2, 0]
        self.memory[: HEAD.size] = HEAD.pack(*self.head)
        self.memory[HEAD.size : HEAD.size + 6] = b"resize"

    def add(self, pid: int, state: int, task: int = 0, inside: str = "") -> None:
        """Add a worker."""
        at = self.first + self.count * self.stride
        since = time.monotonic_ns() - 5 * 10**9
        self.memory[at : at + 40] = struct.pack("<QQQIIQ", 0, task, since, 0, state, 9)
        if inside:
            self.memory[at + 64 : at + 64 + 48] = struct.pack("<Q40s", since, inside.encode())
        title = f"worker-{self.count}".encode()
        self.memory[at + 128 : at + 128 + 104] = struct.pack("<II32s16s48s", pid, 1, title, b"cuda:0", b"")
        self.count += 1
        self.head[2] = self.count
        self.memory[: HEAD.size] = HEAD.pack(*self.head)

    def close(self) -> None:
        """Unmap and close the board."""
        self.memory.close()
        os.close(self.file)


@pytest.fixture
def board():
    """Give a board named "demo" of this process."""
    made = Board("demo")
    yield made
    made.close()


@pytest.fixture
def sleeper():
    """Give a process that sleeps."""
    child = subprocess.Popen(["/bin/sleep", "1000"])
    yield child
    child.kill()
    child.wait()


def ours(answer: dict) -> list[dict]:
    """The pools of this process."""
    return [pool for pool in answer["pools"] if pool["application_pid"] == os.getpid()]


def test_no_pools_is_not_an_error(plain):
    """The list is empty."""
    done = plain.run("ps")
    assert (done.returncode, done.stderr) == (0, "")
    assert ours(plain.read_json("ps")) == []


def test_table_shows_workers(plain, board, sleeper):
    """With the call in which each worker is."""
    board.add(sleeper.pid, RUNNING, task=42, inside="cuStreamSynchronize")
    board.add(2**31 - 20, IDLE)
    done = plain.run("ps")
    assert done.returncode == 0
    assert f"pool demo of process {os.getpid()}, 1 min" in done.stdout
    assert "3 pending, 1 in flight, 7 finished, 2 failed, 0 restarts" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if f" {sleeper.pid} " in line]
    assert row.startswith("worker-0 ")
    for part in ("cuda:0", "running", "resize #42", "cuStreamSynchronize 5.", "9"):
        assert part in row
    assert "idle (gone)" in done.stdout


def test_json_has_the_contents_of_the_table(plain, board, sleeper):
    """Keys are stable."""
    board.add(sleeper.pid, RUNNING, task=42, inside="queue.get")
    (pool,) = ours(plain.read_json("ps"))
    assert (pool["name"], pool["pending"], pool["failed"], pool["problem"]) == ("demo", 3, 2, None)
    (worker,) = pool["workers"]
    assert (worker["pid"], worker["state"], worker["task"], worker["task_name"]) == (
        sleeper.pid,
        "running",
        42,
        "resize",
    )
    assert worker["inside"] == "queue.get"
    assert worker["inside_seconds"] >= 5
    assert worker["is_alive"]
    assert worker["resident_bytes"] > 0


def test_stopped_worker_is_shown_as_stopped(plain, board, sleeper):
    """Regardless of its last entry."""
    board.add(sleeper.pid, RUNNING, task=1)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert "running (stopped)" in plain.run("ps").stdout


def test_missing_stack_has_a_reason(plain, board, sleeper):
    """A process that is not a worker of the pool is not interrupted."""
    board.add(sleeper.pid, RUNNING, task=1)
    done = plain.run("ps", "--stacks")
    assert done.returncode == 0
    assert f"stack of worker-0 ({sleeper.pid}): it is not a worker of this pool" in done.stdout


def test_invalid_board_is_a_problem_and_not_a_crash(plain):
    """Another version, and random bytes."""
    other = Board("other", version=7)
    (pool,) = ours(plain.read_json("ps"))
    assert "version 7" in pool["problem"]
    other.memory[:] = os.urandom(len(other.memory))
    assert plain.run("ps").returncode == 0
    head = HEAD.pack(MAGIC, 1, 2**32 - 1, os.getpid(), 2**32 - 1, 1, b"\033" * 48, 1, 1, 1, 1, 1)
    other.memory[: HEAD.size] = head
    done = plain.run("ps")
    assert done.returncode == 0
    assert "\033" not in done.stdout
    other.close()


def test_interrupt_ends_watch_successfully(plain, board):
    """Each sample is a line of JSON."""
    child = subprocess.Popen(
        [plain.path, "ps", "--watch", "0.1", "--json"], env=plain.variables(), stdout=subprocess.PIPE, text=True
    )
    for _ in range(3):
        assert ours(json.loads(child.stdout.readline()))[0]["name"] == "demo"
    child.send_signal(signal.SIGINT)
    child.stdout.read()
    assert child.wait(WATCHDOG) == 0


def test_watch_redraws_a_terminal(plain, board):
    """With the default pause."""
    ours_end, theirs = pty.openpty()
    child = subprocess.Popen([plain.path, "ps", "--watch"], env=plain.variables(), stdout=theirs)
    os.close(theirs)
    shown = b""
    while b"pool demo" not in shown:
        shown += os.read(ours_end, 4096)
    assert b"\033[2J" in shown
    child.send_signal(signal.SIGINT)
    assert child.wait(WATCHDOG) == 0
    os.close(ours_end)


@pytest.mark.parametrize("arguments", [["x"], ["--watch", "0"], ["--watch", "-1"], ["--fly"]], ids=" ".join)
def test_invalid_arguments_are_wrong_usage(plain, arguments):
    """As everywhere in the tool."""
    assert plain.run("ps", *arguments).returncode == 2


def test_doctor_explains_a_process_without_drover(plain, sleeper):
    """It is stopped, and the remedy is the command that continues it."""
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    done = plain.run("doctor", "--pid", str(sleeper.pid), "--no-stacks")
    assert done.returncode == 1
    assert f"process {sleeper.pid}: /bin/sleep 1000" in done.stdout
    assert f"kill -CONT {sleeper.pid}" in done.stdout
    assert "Something is stuck" in done.stdout
    answer = plain.read_json("doctor", "--pid", str(sleeper.pid), "--no-stacks", status=1)
    assert answer["verdict"] == "failure"
    assert answer["processes"][0]["findings"][0]["id"] == "stopped"


def test_doctor_finds_a_forked_child_that_waits_for_a_missing_thread(plain):
    """Python programs that fork while a thread holds a lock do that."""
    script = (
        "import os, threading, time\n"
        "lock = threading.Lock()\n"
        "lock.acquire()\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "if os.fork() == 0: lock.acquire()\n"
        "print('ready', flush=True)\n"
        "os.wait()\n"
    )
    parent = subprocess.Popen(
        ["python3", "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert parent.stdout.readline() == "ready\n"
        watchdog = time.monotonic() + WATCHDOG
        while "lock-after-fork" not in plain.run("doctor", "--pid", str(parent.pid), "--no-stacks").stdout:
            assert time.monotonic() < watchdog
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def test_doctor_of_an_unknown_process_is_an_error(plain):
    """An invalid pid is wrong usage."""
    done = plain.run("doctor", "--pid", str(2**31 - 20))
    assert (done.returncode, done.stdout) == (3, "")
    assert "there is no process" in done.stderr
    assert plain.run("doctor", "--pid", "0").returncode == 2
    assert plain.run("doctor", "--pid", "x").returncode == 2


def test_help_has_examples(plain):
    """As every command has."""
    done = plain.run("ps", "--help")
    assert done.returncode == 0
    assert "Examples:\n" in done.stdout
