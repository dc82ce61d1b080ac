#!/usr/bin/env python3
"""Runs the steps of `make test`, `make check` or `make test-all`, and ends with a table of their times.

It stops at the first failing step and prints the output of the failure last.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from change import base_of, changed_since
from passed import Passed, content_of
from repo import ROOT
from step_report import VARIABLE, StepReport

FOLDER = ROOT / "build" / "steps"
# Parts that only a build without sanitizers can test, and targets that pytest needs.
PLAIN_PARTS = ("harness", "model", "torture")
PLAIN_TARGETS = (
    "drover",
    "harness_test",
    "model_test",
    "torture_test",
    "drover_cli",
    "drover_python",
    "fake_cuda",
    "fake_nvml",
)
QUICK_GATES = ("format", "ruff-format", "ruff", "shell", "layers", "names", "sizes", "docs")


@dataclass(frozen=True)
class Step:
    """A command with a name. A step that succeeded is skipped while the files that it `reads` stay the same."""

    name: str
    command: tuple[str, ...]
    reads: tuple[Path, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Row:
    """The time and the result of a step."""

    name: str
    wall_s: float
    cpu_s: float
    report: StepReport
    status: int = 0


def script(name: str, *arguments: str) -> tuple[str, ...]:
    """The command of a script in this directory."""
    return (sys.executable, str(ROOT / "scripts" / name), *arguments)


def without_random_addresses() -> tuple[str, ...]:
    """Return the prefix that the thread sanitizer of GCC 13 and older needs under wide address randomisation."""
    command = ("setarch", "-R")
    if shutil.which(command[0]) is None:
        return ()
    return command if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0 else ()


def setup(clang: str) -> Step:
    """Install everything that the other steps need, including the compiler of the fuzzers."""
    packages = ("--with", f"clang-{clang}", "--with", f"libclang-rt-{clang}-dev")
    return Step("setup", (str(ROOT / "scripts" / "setup.sh"), *packages))


def build_fuzzers(clang: str) -> Step:
    """Build the fuzzers with clang."""
    return Step("build fuzz", script("build.py", "fuzz", "-D", f"CMAKE_CXX_COMPILER=clang++-{clang}"))


def fuzz(seconds: int, is_skippable: bool) -> Step:
    """Run each fuzzer for `seconds`; skippable while the programs stay the same."""
    programs = tuple(sorted((ROOT / "fuzz").glob("*_fuzzer.cpp")))
    built = tuple(ROOT / "build" / "fuzz" / "fuzz" / path.stem for path in programs)
    return Step("fuzz", script("fuzz.py", "--seconds", str(seconds)), reads=built if is_skippable else ())


def wheel() -> Step:
    """Build the wheel; pip rebuilds only changed files."""
    python = str(ROOT / ".venv" / "bin" / "python")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", "build/wheel")
    folder = "--config-settings=build-dir=build/wheel/cmake"
    return Step("wheel", (python, "-m", "pip", "wheel", ".", *options, folder))


def torture_python() -> Step:
    """Kill Python programs more often than a normal run of the tests does."""
    command = (str(ROOT / ".venv" / "bin" / "pytest"), "-q", "-s", "tests/python/test_kills.py")
    return Step(
        "torture python", command, variables={"DROVER_PYTHON_KILLS": "300", "DROVER_BUILD_DIR": "build/plain"}
    )


def steps_of_test(base: str, clang: str) -> list[Step]:
    """The steps that must pass before a change lands."""
    plain = without_random_addresses()
    return [
        setup(clang),
        Step("lint", script("lint.py", "--base", base)),
        Step("build asan", script("build.py", "asan")),
        Step("test asan", script("run_tests.py", "build/asan")),
        Step("build tsan", (*plain, *script("build.py", "tsan"))),
        Step("test tsan", (*plain, *script("run_tests.py", "build/tsan", "--leave-out", "torture"))),
        Step("build dev", script("build.py", "dev", *PLAIN_TARGETS)),
        Step("test dev", script("run_tests.py", "build/dev", *(f"--part={part}" for part in PLAIN_PARTS))),
        build_fuzzers(clang),
        fuzz(5, is_skippable=True),
        wheel(),
        Step("pytest", script("run_pytest.py")),
    ]


def tests_of_python(base: str) -> list[Step]:
    """Run changed tests of pytest, and the tests of changed directories."""
    commit = base_of(ROOT, base)
    changed = changed_since(ROOT, commit) if commit else {"python/", "scripts/", "cli/"}
    tests = {name for name in changed if Path(name).name.startswith("test_") and name.endswith(".py")}
    folders = {"python/": "tests/python", "scripts/": "tests/scripts", "cli/": "tests/cli", "docs/": "tests/docs"}
    for folder, its_tests in folders.items():
        if any(name.startswith(folder) for name in changed):
            tests = {name for name in tests if not name.startswith(its_tests)} | {its_tests}
    existing = sorted(name for name in tests if (ROOT / name).exists())
    return [Step("pytest", script("run_pytest.py", *existing))] if existing else []


def steps_of_check(base: str, clang: str) -> list[Step]:
    """The steps of daily work."""
    del clang
    gates = tuple(f"--only={gate}" for gate in QUICK_GATES)
    return [
        Step("setup", (str(ROOT / "scripts" / "setup.sh"),)),
        Step("quick gates", script("lint.py", *gates)),
        Step("build dev", script("build.py", "dev")),
        Step("tidy", script("lint.py", "--only", "tidy", "--base", base)),
        Step("test dev", script("run_tests.py", "build/dev", "--leave-out", "torture")),
        *tests_of_python(base),
    ]


def steps_of_all(base: str, clang: str) -> list[Step]:
    """All steps, without skipping any that passed before."""
    del base
    plain = without_random_addresses()
    return [
        setup(clang),
        Step("lint", script("lint.py", "--base", "everything")),
        Step("build plain", script("build.py", "plain")),
        Step("test plain", script("run_tests.py", "build/plain", "--all")),
        Step("build asan", script("build.py", "asan-all")),
        Step("test asan", script("run_tests.py", "build/asan-all", "--all")),
        Step("build tsan", (*plain, *script("build.py", "tsan-all"))),
        Step("test tsan", (*plain, *script("run_tests.py", "build/tsan-all", "--all"))),
        build_fuzzers(clang),
        fuzz(60, is_skippable=False),
        wheel(),
        Step("pytest", script("run_pytest.py", "--all"), variables={"DROVER_BUILD_DIR": "build/plain"}),
        Step("build torture", script("build.py", "release", "torture")),
        Step("torture", (str(ROOT / "build/release/tests/torture/torture"), "--kills", "20000")),
        torture_python(),
    ]


PLANS = {"test": steps_of_test, "check": steps_of_check, "test-all": steps_of_all}


def run_step(step: Step) -> Row:
    """Run one step and show its output."""
    print(f"== {step.name}", flush=True)
    file = FOLDER / (step.name.replace(" ", "_") + ".json")
    file.unlink(missing_ok=True)
    passed = Passed(FOLDER / "passed")
    content = content_of(step.reads, repr(step.command)) if step.reads else ""
    name = step.name.replace(" ", "_")
    if step.reads and passed.has(name, content):
        print("skipped: it passed with the same programs")
        return Row(step.name, 0.0, 0.0, StepReport(note="unchanged"))
    environment = {**os.environ, VARIABLE: str(file), **step.variables}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    status = subprocess.run(step.command, cwd=ROOT, env=environment, check=False).returncode
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if step.reads and status == 0:
        passed.remember(name, content)
    return Row(step.name, wall_s, cpu_s, StepReport.load(file), status)


def table_of(rows: list[Row]) -> str:
    """The rows and their sum as text."""
    total = Row("total", sum(row.wall_s for row in rows), sum(row.cpu_s for row in rows), StepReport())
    total.report.tests = sum(row.report.tests for row in rows)
    lines = [f"{'step':<16} {'wall s':>8} {'CPU s':>8} {'tests':>7}  "]
    for row in [*rows, total]:
        tests = str(row.report.tests) if row.report.tests or row is total else ""
        note = f"FAILED (status {row.status})" if row.status else row.report.note
        lines.append(f"{row.name:<16} {row.wall_s:>8.0f} {row.cpu_s:>8.0f} {tests:>7}  {note}".rstrip())
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", choices=PLANS)
    parser.add_argument("--base", default="", help="commit to compare with, or 'everything'")
    parser.add_argument("--clang", default="16", help="version of clang for the fuzzers")
    parser.add_argument("--list", action="store_true", help="only print the names of the steps")
    options = parser.parse_args(arguments)
    steps = PLANS[options.plan](options.base, options.clang)
    if options.list:
        print("\n".join(step.name for step in steps))
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for step in steps:
        rows.append(run_step(step))
        if rows[-1].status:
            break
    last = rows[-1]
    print(f"\n{table_of(rows)}\n", flush=True)
    if last.status == 0:
        print(f"make {options.plan}: everything passed")
        return 0
    if last.report.failure:
        print(last.report.failure)
    print(f"make {options.plan}: the step '{last.name}' failed (status {last.status})", file=sys.stderr)
    return last.status if last.status > 0 else 128 - last.status


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
