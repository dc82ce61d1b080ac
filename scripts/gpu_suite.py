#!/usr/bin/env python3
"""Runs everything that needs a GPU: tests of devices and of the Python package, the benchmark, and a leak check.

Needs a compiler, CMake and ninja. Other dependencies come from the system or from .deps/ (`make bundle`), so the
suite also runs on machines without a network. The Python package is built and tested if an interpreter has nanobind
and pytest. Without a GPU the suite lists the tests as skipped and succeeds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gpus
from gtest_program import FAILED, PASSED, SKIPPED, Row, list_tests, run_logged, run_tests, tail
from pytest_program import SUITE, find_python, is_built, run_python_tests
from repo import ROOT

TEST_FILTER = "*Cuda*:*/cuda*"
# Excluded under the sanitizer: tests named `fault` make kernels fault on purpose, which it reports; and it waits for
# the work of a stream that is destroyed, which that test releases only afterwards.
SANITIZER_FILTER = f"{TEST_FILTER}-*fault*:*destroying_a_stream*"
LEAK_TOLERANCE_BYTES = 16 * 2**20
# The driver frees the memory of ended processes with a delay.
LEAK_PATIENCE_S = 10.0
TOOLS = ("cmake", "ninja")
COMPILERS = ("c++", "g++", "clang++")


class BuildError(Exception):
    """The suite could not be built."""


def missing_tools() -> list[str]:
    """Missing programs that the build needs."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if not any(map(shutil.which, filter(None, (os.environ.get("CXX"), *COMPILERS)))):
        missing.append("a C++ compiler")
    return missing


def build(folder: Path, python: str | None) -> None:
    """Configure and build the release preset in `folder`, with the Python package if an interpreter is given."""
    package = [f"-DDROVER_BUILD_PYTHON={'ON' if python else 'OFF'}"]
    if python:
        package.append(f"-DPython_EXECUTABLE={python}")
    for step in (["cmake", "--preset", "release", "-B", str(folder), *package], ["cmake", "--build", str(folder)]):
        print(f"gpu: {' '.join(step)}", flush=True)
        done = subprocess.run(
            step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            raise BuildError(f"{tail(done.stdout)}\n`{' '.join(step)}` failed with status {done.returncode}")


def test_programs(folder: Path) -> list[Path]:
    """The test programs of a build."""
    found = (path for path in (folder / "tests").rglob("*_test") if path.is_file() and os.access(path, os.X_OK))
    return sorted(found)


def skipped_rows(programs: list[Path], reason: str) -> Iterator[Row]:
    """A row for every test that needs a device."""
    for program in programs:
        try:
            yield from (Row(program.name, test, SKIPPED, 0.0, reason) for test in list_tests(program, TEST_FILTER))
        except (OSError, subprocess.SubprocessError) as error:
            yield Row(program.name, "(list of tests)", FAILED, 0.0, f"failed to list its tests: {error}")


def choose_python(options: argparse.Namespace) -> str | None:
    """The interpreter for which the package is built and tested; None, with a printed reason, if there is none."""
    if options.no_python:
        return None
    python, reason = find_python()
    if python is None:
        print(f"gpu: skipping the Python package, because no interpreter has nanobind, pytest and headers ({reason})")
    return python


def used_bytes() -> int:
    """GPU memory that all processes together use on all GPUs."""
    return sum(gpu.used_bytes for gpu in gpus.find_gpus()[0])


def check_memory(before: int) -> Row:
    """Check that as much GPU memory is free as before; gives the driver some time."""
    begin = time.monotonic()
    while (grown := used_bytes() - before) > LEAK_TOLERANCE_BYTES and time.monotonic() - begin < LEAK_PATIENCE_S:
        time.sleep(0.5)
    seconds = time.monotonic() - begin
    if grown <= LEAK_TOLERANCE_BYTES:
        return Row("memory", "all GPU memory is given back", PASSED, seconds)
    detail = (
        f"{grown / 2**20:.0f} MiB more GPU memory is in use than before the suite: either it leaked, or another "
        "program started meanwhile (check nvidia-smi, and run the suite on an idle machine)"
    )
    return Row("memory", "all GPU memory is given back", FAILED, seconds, detail)


def run_benchmark(folder: Path, out: Path, timeout_s: float) -> Iterator[Row]:
    """Run the device benchmark, if it was built, and print its report."""
    program = folder / "benchmarks" / "bench_device"
    if not program.is_file():
        return
    log = out / "bench_device.log"
    begin = time.monotonic()
    status = run_logged([str(program), "--json", str(out / "bench_device.json")], log, timeout_s)
    text = log.read_text(encoding="utf-8", errors="replace")
    print(text, flush=True)
    detail = "" if status == 0 else f"ended with status {status}" if status is not None else "ran out of time"
    yield Row("bench_device", "benchmark", PASSED if status == 0 else FAILED, time.monotonic() - begin, detail)


def run_sanitizer(programs: list[Path], out: Path, timeout_s: float) -> Iterator[Row]:
    """Run the device tests again under compute-sanitizer, which finds illegal accesses that do not crash."""
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if tool is None:
        missing = "compute-sanitizer was not found: install CUDA's tools, or omit --sanitizer"
        yield Row("sanitizer", "compute-sanitizer", FAILED, 0.0, missing)
        return
    for program in programs:
        log = out / f"{program.name}.sanitizer.log"
        # Failing calls are not findings: tests make calls fail and check the error.
        switches = ["--error-exitcode=9", "--target-processes=all", "--report-api-errors=no"]
        command = [tool, *switches, str(program), f"--gtest_filter={SANITIZER_FILTER}"]
        begin = time.monotonic()
        status = run_logged(command, log, timeout_s)
        detail = "" if status == 0 else tail(log.read_text(encoding="utf-8", errors="replace"))
        yield Row("sanitizer", program.name, PASSED if status == 0 else FAILED, time.monotonic() - begin, detail)


def print_table(rows: list[Row]) -> None:
    """Print the table, the output of failed tests, and a summary."""
    suite_width = max([len("suite"), *(len(row.suite) for row in rows)])
    test_width = max([len("test"), *(len(row.test) for row in rows)])
    print(f"\n{'suite':<{suite_width}}  {'test':<{test_width}}  result   seconds")
    for row in rows:
        print(f"{row.suite:<{suite_width}}  {row.test:<{test_width}}  {row.result:<7}  {row.seconds:7.2f}")
    for row in rows:
        if row.result == FAILED:
            print(f"\nFAILED {row.suite} {row.test}\n{row.detail}")
    counts = [sum(row.result == kind for row in rows) for kind in (PASSED, FAILED, SKIPPED)]
    print(f"\n{counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")


def run_all(options: argparse.Namespace, folder: Path, python: str | None) -> list[Row]:
    """Run everything that the options select, on a machine with a GPU."""
    programs, out = test_programs(folder), folder / "gpu_suite"
    before = used_bytes()
    rows: list[Row] = []
    for program in programs:
        done = run_tests(program, TEST_FILTER, out, options.timeout)
        rows += done
        print(f"gpu: {program.name}: {len(done)} tests", flush=True)
    tested = {row.suite for row in rows}
    if not rows:
        rows.append(Row("tests", "(list of tests)", FAILED, 0.0, f"no test in {folder}/tests matches {TEST_FILTER}"))
    if options.sanitizer:
        rows += run_sanitizer([path for path in programs if path.name in tested], out, options.timeout)
    if python and is_built(folder):
        done = run_python_tests(python, folder, out, options.timeout)
        rows += done
        print(f"gpu: tests/python: {len(done)} tests", flush=True)
    if not options.no_bench:
        rows += run_benchmark(folder, out, options.timeout)
    return [*rows, check_memory(before)]


def suite(options: argparse.Namespace) -> int:
    """Build, run and report."""
    found, reason = gpus.find_gpus()
    for index, gpu in enumerate(found):
        print(f"gpu: {index}: {gpu.name}, {gpu.used_bytes / 2**20:.0f} MiB in use")
    if not found:
        print(f"gpu: this machine has no usable GPU ({reason}); tests that need one are skipped")
        if not options.no_build and (missing := missing_tools()):
            print(f"gpu: the tests cannot be listed, because the build needs {', '.join(missing)}")
            print_table([])
            return 0
    folder, python = options.build.resolve(), choose_python(options)
    if not options.no_build:
        build(folder, python)
    rows = run_all(options, folder, python) if found else list(skipped_rows(test_programs(folder), reason))
    if not found and python and is_built(folder):
        rows.append(Row(SUITE, "tests/python", SKIPPED, 0.0, reason))
    print_table(rows)
    return 1 if any(row.result == FAILED for row in rows) else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the suite; returns 0 if nothing failed, 1 if something did, 130 if interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "gpu", help="build directory (default build/gpu)"
    )
    parser.add_argument("--no-build", action="store_true", help="use the programs in the build directory as they are")
    parser.add_argument("--no-bench", action="store_true", help="skip the benchmark")
    parser.add_argument("--no-python", action="store_true", help="skip the Python package")
    parser.add_argument("--sanitizer", action="store_true", help="also run the tests under compute-sanitizer")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each program (default 900)")
    options = parser.parse_args(arguments)
    try:
        return suite(options)
    except BuildError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ngpu: interrupted; all processes of the suite were killed", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
