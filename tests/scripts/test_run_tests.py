"""scripts/run_tests.py: which programs run again, and how failures are shown."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_tree import SCRIPTS

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES NONE)
enable_testing()
foreach(part a b)
  file(WRITE "${CMAKE_BINARY_DIR}/${part}.cmake" "set(part ${part})
set(program ${CMAKE_SOURCE_DIR}/${part}_test)
include(SUITES)
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${CMAKE_BINARY_DIR}/${part}.cmake")
  file(WRITE "${CMAKE_BINARY_DIR}/test_programs/${part}"
    "${CMAKE_SOURCE_DIR}/${part}_test\\n${CMAKE_SOURCE_DIR}/data\\n")
endforeach()
"""
# Has two suites, records its filter, and fails if the file `broken` exists.
PROGRAM = """#!/bin/sh
if [ "$1" = --gtest_list_tests ]; then
  printf 'Plain.\\n  one\\n  two\\n'
  case "$2" in *-*Torture*) ;; *) printf 'KillTorture.\\n  three\\n' ;; esac
  exit 0
fi
echo "$(basename "$0") $1" >> {log}
echo "many lines of output of $1"
[ ! -e {folder}/broken ]
"""


class Build:
    """A build with two test programs."""

    def __init__(self, folder: Path) -> None:
        """Configure it."""
        self.folder, self.log = folder, folder / "log"
        suites = SCRIPTS.parent / "cmake" / "suites.cmake"
        folder.mkdir()
        (folder / "data").write_text("1", encoding="utf-8")
        (folder / "CMakeLists.txt").write_text(PROJECT.replace("SUITES", str(suites)), encoding="utf-8")
        for part in "ab":
            self.program(part, PROGRAM)
        subprocess.run(["cmake", "-B", str(folder / "build"), str(folder)], check=True, capture_output=True)

    def program(self, part: str, text: str) -> None:
        """Write a test program."""
        path = self.folder / f"{part}_test"
        path.write_text(text.format(log=self.log, folder=self.folder), encoding="utf-8")
        path.chmod(0o755)

    def run(self, *arguments: str) -> tuple[int, str, dict[str, str]]:
        """Run the tests; status, output and report."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "run_tests.py"), str(self.folder / "build"), *arguments],
            env={
                "PATH": str(Path(shutil.which("ctest") or "").parent) + ":/usr/bin:/bin",
                "DROVER_STEP_REPORT": str(report),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, json.loads(report.read_text()) if report.exists() else {}

    def runs(self) -> list[str]:
        """The arguments of all runs of the programs, sorted."""
        return sorted(self.log.read_text(encoding="utf-8").splitlines()) if self.log.exists() else []


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Give a build."""
    return Build(tmp_path / "tree")


ALL = [f"{part}_test --gtest_filter={suite}.*" for part in "ab" for suite in ("KillTorture", "Plain")]


def test_each_suite_runs_once_and_does_not_run_again_after_it_passed(build: Build) -> None:
    """Unless all are to run."""
    status, text, report = build.run()
    assert (status, build.runs(), report["tests"]) == (0, ALL, 6), text
    status, text, report = build.run()
    assert (status, build.runs(), report["tests"]) == (0, [], 0)
    assert "skipped, because unchanged since they passed: a, b" in text
    build.run("--all")
    assert build.runs() == ALL


def test_program_runs_again_after_it_or_a_file_changed(build: Build) -> None:
    """Any change of the bytes counts."""
    build.run()
    build.program("b", PROGRAM + "# another\n")
    build.run()
    assert build.runs() == ALL[2:]
    (build.folder / "data").write_text("2", encoding="utf-8")
    build.run()
    assert build.runs() == ALL


def test_failure_is_shown_last_and_never_remembered(build: Build) -> None:
    """With the output of the test, which is also in the report for the end of all steps."""
    (build.folder / "broken").touch()
    status, text, report = build.run("--part", "a")
    assert status == 1
    assert "---- a.Plain failed:\nmany lines of output of --gtest_filter=Plain.*" in report["failure"]
    assert text.endswith(report["failure"] + "\n")
    (build.folder / "broken").unlink()
    assert build.run("--part", "a")[0] == 0
    assert build.runs() == ALL[:2]


def test_failed_program_runs_again_even_if_it_passed_before(build: Build) -> None:
    """An older pass does not excuse a flaky test."""
    build.run()
    (build.folder / "broken").touch()
    assert build.run("--all")[0] == 1
    (build.folder / "broken").unlink()
    build.run()
    assert build.runs() == ALL


def test_labels_can_be_excluded(build: Build) -> None:
    """Such runs are remembered separately, and the excluded tests are not counted."""
    _, _, report = build.run("--leave-out", "torture")
    assert (build.runs(), report["tests"]) == ([ALL[1], ALL[3]], 4)
    build.run()
    assert build.runs() == ALL


def test_missing_program_and_unknown_part_are_errors(build: Build) -> None:
    """The messages say what to do."""
    assert "has no tests of nonsense: check the name of the part" in build.run("--part", "nonsense")[1]
    (build.folder / "a_test").unlink()
    status, text, _ = build.run()
    assert status == 1
    assert "a_test is not built: run `cmake --build" in text
