"""scripts/fuzz.py on fake fuzzers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import fuzz

GOOD = 'echo "#7 DONE cov: 42 ft: 9"; echo "stat::number_of_executed_units: 1234"'
BAD = 'echo "AddressSanitizer: heap-buffer-overflow"; exit 77'


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Give an empty build directory."""
    (tmp_path / "fuzz").mkdir()
    return tmp_path


def add_fuzzer(build: Path, name: str, text: str) -> None:
    """Add a program that records its arguments."""
    path = build / "fuzz" / f"{name}_fuzzer"
    path.write_text(f'#!/bin/sh\necho "$@" > {build}/{name}.arguments\n{text}\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_every_fuzzer_runs_with_its_seeds(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For the given time, with one line of result each."""
    add_fuzzer(build, "queue", GOOD)
    add_fuzzer(build, "other", GOOD)
    assert fuzz.main(["--build", str(build), "--seconds", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["fuzz", "other", "ok"], ["fuzz", "queue", "ok"]]
    assert all("1234 runs, coverage 42" in line for line in lines)
    assert "-max_total_time=3" in (build / "queue.arguments").read_text(encoding="utf-8")
    assert len(list((build / "corpus/queue").iterdir())) == len(fuzz.SEEDS["queue"])


def test_failure_is_shown_and_fails(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the fuzzer's output, and the directory of the input."""
    add_fuzzer(build, "pool", BAD)
    add_fuzzer(build, "queue", GOOD)
    assert fuzz.main(["--build", str(build)]) == 1
    out = capsys.readouterr().out
    assert "heap-buffer-overflow" in out
    assert "fuzz pool       FAILED" in out
    assert "fuzz queue      ok" in out
    assert str(build / "findings") in out


def test_fuzzer_that_runs_nothing_fails(build: Path) -> None:
    """Success without a run is a failure."""
    add_fuzzer(build, "pool", "true")
    assert fuzz.main(["--build", str(build)]) == 1


def test_one_fuzzer_can_be_chosen(build: Path) -> None:
    """An unknown fuzzer is an error."""
    add_fuzzer(build, "pool", GOOD)
    add_fuzzer(build, "queue", BAD)
    assert fuzz.main(["--build", str(build), "--only", "pool"]) == 0
    assert fuzz.main(["--build", str(build), "--only", "nothing"]) == 2


def test_every_fuzzer_of_the_tree_has_seeds() -> None:
    """Seeds and sources have the same names."""
    sources = {path.stem.removesuffix("_fuzzer") for path in (fuzz.ROOT / "fuzz").glob("*_fuzzer.cpp")}
    assert sources == set(fuzz.SEEDS)
