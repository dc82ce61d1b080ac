"""Lists and runs the tests of a GoogleTest program, and reports how each ended, even after a crash or a hang."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"
LIST_TIMEOUT_S = 120


@dataclass(frozen=True)
class Row:
    """One line of the table of results."""

    suite: str
    test: str
    result: str
    seconds: float = 0.0
    detail: str = ""


def list_tests(program: Path, test_filter: str) -> list[str]:
    """Full names of the selected tests; raises subprocess.SubprocessError or OSError."""
    command = [str(program), "--gtest_list_tests", f"--gtest_filter={test_filter}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIST_TIMEOUT_S, check=True)
    names, suite = [], ""
    for line in done.stdout.splitlines():
        text = line.split("#")[0].rstrip()
        if re.fullmatch(r"[\w/]+\.", text):
            suite = text
        elif suite and re.fullmatch(r"  [\w/]+", text):
            names.append(suite + text.strip())
    return names


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill a program and its whole process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_logged(command: list[str], log: Path, timeout_s: float) -> int | None:
    """Run a program with its output in `log`; its exit status, or None if it timed out.

    The stacks of a program that hangs are appended to the log before it is killed. Its process group is killed too.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            sink.write(f"\nstill running after {timeout_s:g} s; its stacks:\n")
            sink.flush()
            stacks = [sys.executable, str(Path(__file__).with_name("hang_stacks.py")), str(process.pid)]
            subprocess.run(stacks, stdout=sink, stderr=subprocess.STDOUT, check=False)
            return None
        finally:
            end_group(process)


def _rows_of_report(suite: str, report: Path) -> Iterator[Row]:
    for group in json.loads(report.read_text(encoding="utf-8"))["testsuites"]:
        for test in group["testsuite"]:
            failures = [failure["failure"].strip() for failure in test.get("failures", [])]
            result = FAILED if failures else SKIPPED if test.get("result") == "SKIPPED" else PASSED
            seconds = float(test.get("time", "0s").rstrip("s"))
            yield Row(suite, f"{group['name']}.{test['name']}", result, seconds, "\n".join(failures))


def _last_started(log: str) -> str | None:
    started = re.findall(r"^\[ RUN      \] (\S+)", log, re.MULTILINE)
    return started[-1] if started else None


def _rows_of_log(suite: str, log: str, ending: str) -> Iterator[Row]:
    """The results in the output of a program that ended before it wrote its report."""
    for result, name, milliseconds in re.findall(
        r"^\[ +(OK|FAILED|SKIPPED) \] ([\w/.]+)(?:, where .*)? \((\d+) ms\)", log, re.MULTILINE
    ):
        kind = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}[result]
        yield Row(suite, name, kind, int(milliseconds) / 1000, log if kind == FAILED else "")
    culprit = _last_started(log)
    if culprit is not None:
        yield Row(suite, culprit, FAILED, 0.0, f"{ending} in this test; the end of its output:\n{tail(log)}")


def tail(text: str, lines: int = 60) -> str:
    """The last lines of a text."""
    return "\n".join(text.splitlines()[-lines:])


def run_tests(program: Path, test_filter: str, out: Path, timeout_s: float) -> list[Row]:
    """Run the selected tests; one row for each of them, including those that were never reached."""
    suite = program.name
    try:
        wanted = list_tests(program, test_filter)
    except (OSError, subprocess.SubprocessError) as error:
        return [Row(suite, "(list of tests)", FAILED, 0.0, f"{program} failed to list its tests: {error}")]
    if not wanted:
        return []
    report, log = out / f"{suite}.json", out / f"{suite}.log"
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    command = [str(program), f"--gtest_filter={test_filter}", f"--gtest_output=json:{report}"]
    status = run_logged(command, log, timeout_s)
    output = log.read_text(encoding="utf-8", errors="replace")
    ending = "timed out" if status is None else f"the program ended with status {status}"
    if report.is_file():
        rows = {row.test: row for row in _rows_of_report(suite, report)}
    else:
        rows = {row.test: row for row in _rows_of_log(suite, output, ending)}
    rows = {name: rows.get(name, Row(suite, name, FAILED, 0.0, f"was not run: {ending}")) for name in wanted}
    if status != 0 and not any(row.result == FAILED for row in rows.values()):
        what = f"{ending} though no test failed; the end of its output:\n{tail(output)}"
        rows["(program)"] = Row(suite, "(program)", FAILED, time.monotonic() - begin, what)
    return list(rows.values())
