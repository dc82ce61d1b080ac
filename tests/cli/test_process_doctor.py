"""`drover doctor --pid` on Python programs that hang: which lock, who has it, and where in the program."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from drover_tool import WATCHDOG, Drover


@contextlib.contextmanager
def running(folder: Path, source: str) -> Iterator[tuple[int, str]]:
    """Run a Python program in a process group of its own; yield its pid and path, and kill the group."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    with subprocess.Popen([sys.executable, str(path)], start_new_session=True, stdout=subprocess.DEVNULL) as process:
        try:
            yield process.pid, str(path)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def diagnosis_once(drover: Drover, pid: int, holds: Callable[[list[dict]], bool]) -> list[dict]:
    """Diagnose until `holds` accepts the processes; return them."""
    end = time.monotonic() + WATCHDOG
    while True:
        done = drover.run("doctor", "--pid", str(pid), "--no-stacks", "--json")
        processes = json.loads(done.stdout)["processes"] if done.returncode in (0, 1) else []
        if processes and holds(processes):
            return processes
        assert time.monotonic() < end, done.stdout + done.stderr
        time.sleep(0.1)


def ids(process: dict) -> list[str]:
    """Return the ids of the findings of a process."""
    return [finding["id"] for finding in process["findings"]]


def summary(process: dict, name: str) -> str:
    """Return the text of one finding."""
    return next(finding["summary"] for finding in process["findings"] if finding["id"] == name)


def test_standard_lock_whose_holder_died_is_found(plain: Drover, tmp_path: Path) -> None:
    """Nobody else has it, so nobody can release it."""
    with running(
        tmp_path,
        """
        import multiprocessing, os
        def die(lock):
            lock.acquire()
            os._exit(0)
        if __name__ == "__main__":
            lock = multiprocessing.Lock()
            child = multiprocessing.Process(target=die, args=(lock,))
            child.start()
            child.join()
            lock.acquire()
        """,
    ) as (pid, _):
        found = diagnosis_once(plain, pid, lambda all_of: "abandoned-lock" in ids(all_of[0]))[0]
    assert "no other living process has" in summary(found, "abandoned-lock")


def test_standard_pool_with_a_dead_worker_is_found(plain: Drover, tmp_path: Path) -> None:
    """Not blamed on a fork: the idle workers wait for the lock of their queue."""
    with running(
        tmp_path,
        """
        import multiprocessing, os, time
        def die(number):
            if number == 0:
                time.sleep(1)
                os._exit(1)
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(3) as pool:
                pool.map(die, range(6), chunksize=1)
        """,
    ) as (pid, _):
        found = diagnosis_once(plain, pid, lambda all_of: "standard-pool" in ids(all_of[0]))
    assert "whose task is lost" in summary(found[0], "standard-pool")
    assert not any("lock-after-fork" in ids(process) for process in found)


def test_python_frames_are_shown_with_files_lines_and_names(plain: Drover, tmp_path: Path) -> None:
    """For all threads, without stopping the process."""
    with running(
        tmp_path,
        """
        import threading, time
        class Trainer:
            def step(self, depth):
                if depth:
                    return self.step(
                        depth - 1)
                time.sleep(1000)
        threading.Thread(target=Trainer().step, args=(2,), daemon=True).start()
        list(map(lambda _: time.sleep(1000), [1]))
        """,
    ) as (pid, path):
        found = diagnosis_once(plain, pid, lambda all_of: "in <lambda>" in str(all_of[0]["python"]))[0]["python"]
    lines = [line.replace("Trainer.step", "step") for line in found]  # Python 3.10 has no qualified names
    assert f'  File "{path}", line 10 in <lambda>' in lines
    assert f'  File "{path}", line 10 in <module>' in lines
    deepest = lines.index(f'  File "{path}", line 8 in step')
    assert lines[deepest + 1 : deepest + 3] == [f'  File "{path}", line 6 in step'] * 2
    assert sum(line.startswith("Python thread") for line in lines) == 2
