"""Runs the tests of the Python package with an interpreter of this machine, and reports how each ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from gtest_program import FAILED, PASSED, SKIPPED, Row, run_logged, tail
from repo import ROOT

SUITE = "python"
TESTS = ROOT / "tests" / "python"
# Needed to build and test the package; other modules come with it or from .deps.
NEEDED = "import os, sysconfig, nanobind, pytest; os.stat(sysconfig.get_path('include') + '/Python.h')"
ASK_TIMEOUT_S = 60


def find_python() -> tuple[str | None, str]:
    """An interpreter that can build and test the package, this one or that of .venv, or None with the reason."""
    reasons = []
    for python in dict.fromkeys((sys.executable, str(ROOT / ".venv" / "bin" / "python"))):
        if not Path(python).exists():
            continue
        asked = subprocess.run(
            [python, "-c", NEEDED], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
        if asked.returncode == 0:
            return python, ""
        reasons.append(f"{python}: {asked.stderr.strip().splitlines()[-1]}")
    return None, "; ".join(reasons)


def is_built(folder: Path) -> bool:
    """Whether a build directory contains the package."""
    return any((folder / "python" / "drover").glob("_core*.so"))


def _rows_of_report(report: Path) -> Iterator[Row]:
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name', '')}"
        seconds = float(case.get("time", "0"))
        wrong = [*case.iter("failure"), *case.iter("error")]
        if wrong:
            yield Row(SUITE, name, FAILED, seconds, "\n".join(one.text or one.get("message", "") for one in wrong))
        elif (skipped := case.find("skipped")) is not None:
            yield Row(SUITE, name, SKIPPED, seconds, skipped.get("message", ""))
        else:
            yield Row(SUITE, name, PASSED, seconds)


def run_python_tests(python: str, folder: Path, out: Path, timeout_s: float, tests: Path = TESTS) -> list[Row]:
    """Run the tests with the package of a build directory; one row each, and one more if pytest itself fails."""
    report, log = out / "python.xml", out / "python.log"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    begin = time.monotonic()
    command = ["env", f"DROVER_BUILD_DIR={folder}", python, "-m", "pytest", *options, str(tests)]
    status = run_logged(command, log, timeout_s)
    rows = list(_rows_of_report(report)) if report.is_file() else []
    if status != 0 and not any(row.result == FAILED for row in rows):
        ending = "timed out" if status is None else f"pytest ended with status {status}"
        text = tail(log.read_text(encoding="utf-8", errors="replace"))
        what = f"{ending}; the end of its output:\n{text}"
        rows.append(Row(SUITE, "(program)", FAILED, time.monotonic() - begin, what))
    return rows
