#!/usr/bin/env python3
"""Runs the tests of a build with ctest, except programs that have passed and have not changed since.

A program runs again if it, a library or program that it loads or starts, the kernel, or a DROVER_* variable has
changed. The output of failed tests comes last.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from gtest_program import list_tests
from passed import Passed, content_of
from progress_line import ProgressLine
from repo import ROOT
from step_report import StepReport

SHOWN_LINES = 150
# Tests mostly wait for processes, so run more of them than there are processors. ctest begins with those that took
# longest the last time.
JOBS = 2 * (os.cpu_count() or 1)
ENDED = re.compile(r" *(\d+)/(\d+) Test ")
ALWAYS_READ = (ROOT / "scripts" / "hang_stacks.py",)


@dataclass(frozen=True)
class Program:
    """A test program of a build, and the files that its tests read."""

    part: str
    path: Path
    files: tuple[Path, ...]

    def content(self, words: str) -> str:
        """Hash of everything that affects its tests."""
        return content_of([*self.files, *ALWAYS_READ], words)

    def count(self, test_filter: str) -> int:
        """The number of its tests; each example is one."""
        return len(list_tests(self.path, test_filter)) if self.path.name.endswith("_test") else len(self.files)


def programs_of(build: Path, parts: list[str]) -> list[Program]:
    """The programs that CMake listed, of all parts or of some; raises SystemExit if one is not built."""
    found = []
    for listing in sorted((build / "test_programs").glob("*")):
        if parts and listing.name not in parts:
            continue
        files = tuple(Path(line) for line in listing.read_text(encoding="utf-8").splitlines())
        missing = [str(file) for file in files if not file.is_file()]
        if missing:
            raise SystemExit(f"run_tests: {', '.join(missing)} is not built: run `cmake --build {build}`")
        found.append(Program(listing.name, files[0], files))
    if unknown := sorted(set(parts) - {program.part for program in found}):
        raise SystemExit(f"run_tests: {build} has no tests of {', '.join(unknown)}: check the name of the part")
    if not found:
        raise SystemExit(f"run_tests: {build} has no tests: configure it with CMake first")
    return found


def failures_in(results: Path) -> list[str]:
    """The name of each failed test, with the end of its output."""
    if not results.is_file():
        return []
    shown = []
    for case in ElementTree.parse(results).iter("testcase"):
        if case.get("status") in ("run", "notrun", "disabled") and case.find("failure") is None:
            continue
        lines = (case.findtext("system-out") or "").rstrip().splitlines()
        cut = f"... {len(lines) - SHOWN_LINES} lines omitted\n" if len(lines) > SHOWN_LINES else ""
        shown.append(f"---- {case.get('name')} failed:\n{cut}" + "\n".join(lines[-SHOWN_LINES:]))
    return shown


def run_ctest(build: Path, due: list[Program], leave_out: list[str], jobs: int) -> tuple[bool, list[str]]:
    """Run the tests of these programs; whether all passed, and the output of those that failed."""
    results = build / "ctest.xml"
    results.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(build), "-j", str(jobs), "--no-tests=error"]
    command += ["-L", "^(" + "|".join(program.part for program in due) + ")$"]
    command += ["--output-junit", str(results), "--test-output-size-failed", "1000000"]
    if leave_out:
        command += ["-LE", "^(" + "|".join(leave_out) + ")$"]
    line, other = ProgressLine(f"tests of {build.name}"), []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ctest:
        for text in ctest.stdout or ():
            if match := ENDED.match(text):
                line.show(*match.groups())
            other.append(text)
    line.close()
    failures = failures_in(results)
    # If no test is to blame, ctest itself prints the reason.
    return ctest.returncode == 0, failures or (["".join(other)] if ctest.returncode != 0 else [])


def main(arguments: list[str] | None = None) -> int:
    """Run the tests that are due."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="build directory, e.g. build/dev")
    parser.add_argument("--part", action="append", default=[], help="only the tests of this part; repeatable")
    parser.add_argument(
        "--leave-out", metavar="LABEL", action="append", default=[], help="skip tests with this label; repeatable"
    )
    parser.add_argument("--all", action="store_true", help="also run programs that have passed and have not changed")
    parser.add_argument("-j", "--jobs", type=int, default=JOBS, help="number of tests to run in parallel")
    options = parser.parse_args(arguments)
    build = options.build.resolve()
    words = " ".join(options.leave_out)
    passed = Passed(build / "passed", is_forgetful=options.all)
    programs = programs_of(build, options.part)
    contents = {program: program.content(words) for program in programs}
    due = [program for program in programs if not passed.has(program.part, contents[program])]
    if skipped := [program.part for program in programs if program not in due]:
        print(f"skipped, because unchanged since they passed: {', '.join(skipped)}", flush=True)
    test_filter = "-*Torture*" if "torture" in options.leave_out else "*"
    report = StepReport(note=f"{len(due)} of {len(programs)} programs")
    ok = True
    if due:
        for program in due:
            passed.forget(program.part)
        report.tests = sum(program.count(test_filter) for program in due)
        ok, failures = run_ctest(build, due, options.leave_out, options.jobs)
        report.failure = "\n".join(failures)
    if ok:
        for program in due:
            passed.remember(program.part, contents[program])
        print(f"{report.tests} tests passed, {report.note} run")
    elif report.failure:
        print(report.failure)
    report.save()
    return 0 if ok else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
