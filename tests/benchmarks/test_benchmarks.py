"""The benchmarks between processes: what they report, and that they leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DROVER_BUILD_DIR", "build/dev")
FIELDS = {"workload", "contender", "metric", "unit", "median", "p99", "n"}
ALWAYS = {
    "pool": {"drover, map", "drover, map, unbatched", "ring", "threads, mutex", "fork + pipe", "drover, tensors"},
    "queue": {"drover", "drover loan", "pipe", "unix socket, packets", "unix socket, stream", "cache line", "futex"},
    "sync": {"drover Lock", "drover Condition", "drover Barrier", "pthread mutex, robust", "sem_t", "futex"},
}
PATIENCE_S = 60.0


def program(workload: str) -> Path:
    """The program of a workload."""
    path = BUILD / "benchmarks" / f"bench_{workload}"
    if not path.exists():
        pytest.skip(f"{path} is not built: run `make test-all`, which builds benchmarks, or set DROVER_BUILD_DIR")
    return path


def processes_of(path: Path) -> set[int]:
    """The live processes that run a program."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "exe").readlink() == path:
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def names() -> set[str]:
    """Names of shared memory and message queues that may belong to a benchmark."""
    folders = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108 (only read)
    return {str(path) for folder in folders if folder.is_dir() for path in folder.glob("*bench*")}


@pytest.mark.parametrize("workload", ["pool", "queue", "sync"])
def test_smoke_run_writes_every_row_and_leaves_nothing(workload: str, tmp_path: Path) -> None:
    """One row per contender and metric, with the same fields in all workloads."""
    before = names()
    file = tmp_path / "rows.json"
    done = subprocess.run(
        [program(workload), "--smoke", "--json", file], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text(encoding="utf-8"))
    assert all(set(row) == FIELDS for row in rows)
    assert all(row["n"] > 0 and row["median"] > 0 and row["p99"] > 0 for row in rows)
    assert {row["contender"] for row in rows} >= ALWAYS[workload]
    keys = [(row["workload"], row["contender"], row["metric"]) for row in rows]
    assert len(keys) == len(set(keys))
    assert ("target / measured" in done.stdout) == (workload in {"pool", "queue"})
    assert processes_of(program(workload)) == set()
    assert names() <= before


def test_rows_can_be_selected(tmp_path: Path) -> None:
    """By contender, metric and workload."""
    file = tmp_path / "rows.json"
    choice = ["--contender", "pipe", "--metric", "hop", "--workload", "8 B"]
    subprocess.run(
        [program("queue"), "--smoke", "--json", file, *choice], capture_output=True, check=True, timeout=300
    )
    rows = json.loads(file.read_text(encoding="utf-8"))
    assert {(row["workload"], row["contender"]) for row in rows} == {("1:1, 8 B", "pipe")}
    assert {row["metric"] for row in rows} == {"hop, polling", "hop, waiting"}


def test_killed_benchmark_leaves_no_process() -> None:
    """Workers and the keeper of the session die with the conductor."""
    path = program("queue")
    with subprocess.Popen([path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as conductor:
        assert conductor.stderr is not None
        assert conductor.stderr.readline().startswith("round 1 of")  # the workers have started
        assert len(processes_of(path)) > 8
        conductor.send_signal(signal.SIGKILL)
    begin = time.monotonic()
    while processes_of(path) and time.monotonic() - begin < PATIENCE_S:
        time.sleep(0.05)
    assert processes_of(path) == set()
