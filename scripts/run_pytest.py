#!/usr/bin/env python3
"""Runs pytest in parallel, unless all tests have passed with the current tree and build."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from passed import Passed, content_of
from repo import CPP_FILES, ROOT, files_of
from step_report import StepReport

# Tests mostly wait for processes, so run more of them than there are processors.
WORKERS = 3 * (os.cpu_count() or 1)
# Each file in one worker, in the order of tests/conftest.py, which begins with the longest.
DISTRIBUTION = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder")
SUMMARY = re.compile(r"(\d+) (passed|failed|error)")


def files_that_count(root: Path, build: Path) -> list[Path]:
    """Files of the tree and the build on which pytest depends: all except C++ of tests, fuzzers and benchmarks."""
    names = [
        name
        for name in files_of(root)
        if not (name.startswith(("tests/", "fuzz/", "benchmarks/")) and Path(name).suffix in CPP_FILES)
    ]
    built = [*(build / "python" / "drover").glob("_core*.so"), build / "cli" / "drover"]
    return [root / name for name in names] + built


def run(command: list[str]) -> tuple[int, str]:
    """Run a program and show its output; its exit status and its last line."""
    last = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def main(arguments: list[str] | None = None) -> int:
    """Run pytest if anything changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="files or directories; all by default")
    parser.add_argument("--all", action="store_true", help="run them even if they have passed")
    options = parser.parse_args(arguments)
    build = ROOT / os.environ.get("DROVER_BUILD_DIR", "build/dev")
    passed = Passed(build / "passed", is_forgetful=options.all)
    name = "pytest" + "".join("+" + test.replace("/", "+") for test in options.tests)
    content = content_of(files_that_count(ROOT, build), name)
    if passed.has(name, content):
        print("skipped: nothing has changed since all tests passed")
        StepReport(note="unchanged").save()
        return 0
    passed.forget(name)
    status, last = run([str(ROOT / ".venv" / "bin" / "pytest"), "-q", *DISTRIBUTION, *options.tests])
    counts = {word: int(number) for number, word in SUMMARY.findall(last)}
    StepReport(tests=sum(counts.values()), note=last.strip("= ")).save()
    if status == 0:
        passed.remember(name, content)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
