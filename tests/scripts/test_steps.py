"""scripts/steps.py: the plans, the table, and the output when a step fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import steps
from step_report import StepReport


def names(plan: str) -> list[str]:
    """The steps of a plan."""
    return [step.name for step in steps.PLANS[plan]("", "16")]


def test_plans_begin_with_setup_and_build_before_they_test() -> None:
    """Gates come first, then the sanitizers, then the tests of a plain build."""
    assert names("test") == [
        "setup", "lint", "build asan", "test asan", "build tsan", "test tsan", "build dev", "test dev", "build fuzz",
        "fuzz", "wheel", "pytest",
    ]  # fmt: skip
    assert names("check")[:5] == ["setup", "quick gates", "build dev", "tidy", "test dev"]
    assert {"build plain", "test plain", "torture", "torture python"} <= set(names("test-all"))


def test_test_all_skips_nothing() -> None:
    """No step is skipped for the files that it reads, and every run of tests runs all of them."""
    for step in steps.PLANS["test-all"]("", "16"):
        assert step.reads == ()
        if any(name in text for text in step.command for name in ("run_tests.py", "run_pytest.py")):
            assert "--all" in step.command, step.name


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[steps.Step]:
    """Give a plan to which a test can add steps."""
    chosen: list[steps.Step] = []
    monkeypatch.setattr(steps, "FOLDER", tmp_path / "steps")
    monkeypatch.setattr(steps, "PLANS", {"test": lambda _base, _clang: chosen})
    return chosen


def report(**fields: object) -> str:
    """Return a shell command that writes a report."""
    return f"printf '%s' '{json.dumps(fields)}' > $DROVER_STEP_REPORT"


def test_table_has_a_row_for_each_step_and_the_sum(plan: list[steps.Step], capfd: pytest.CaptureFixture[str]) -> None:
    """With wall time, processor time and the number of tests."""
    busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    plan += [
        steps.Step("busy", ("sh", "-c", f"{busy}; {report(tests=7, note='2 of 3 programs')}")),
        steps.Step("idle", ("sh", "-c", report(tests=5))),
    ]
    assert steps.main(["test"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == ["== busy", "== idle"]
    assert [line.split()[0] for line in lines[3:7]] == ["step", "busy", "idle", "total"]
    assert lines[4].endswith(" 7  2 of 3 programs")
    assert lines[6].split()[-1] == "12"
    assert lines[-1] == "make test: everything passed"


def test_failure_ends_the_run_and_its_output_comes_last(
    plan: list[steps.Step], capfd: pytest.CaptureFixture[str]
) -> None:
    """After the table, where it is easy to find."""
    plan += [
        steps.Step("bad", ("sh", "-c", f"echo early; {report(failure='---- a.B failed')}; exit 3")),
        steps.Step("never", ("echo", "unreachable")),
    ]
    assert steps.main(["test"]) == 3
    output = capfd.readouterr()
    assert "unreachable" not in output.out
    assert "FAILED (status 3)" in output.out
    assert output.out.endswith("---- a.B failed\n")
    assert output.err == "make test: the step 'bad' failed (status 3)\n"


def test_step_that_reads_files_is_skipped_until_they_change(
    plan: list[steps.Step], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """But only after it passed."""
    file = tmp_path / "program"
    file.write_text("1", encoding="utf-8")
    plan.append(steps.Step("fuzz", ("sh", "-c", f"echo ran; test $(cat {file}) != 2"), reads=(file,)))
    for text, ran, status in [("1", True, 0), ("1", False, 0), ("2", True, 1), ("2", True, 1), ("3", True, 0)]:
        file.write_text(text, encoding="utf-8")
        assert steps.main(["test"]) == status
        assert ("ran" in capfd.readouterr().out.split()) == ran, text


def test_report_of_a_step_that_wrote_none_is_empty(tmp_path: Path) -> None:
    """Steps that run no tests write no report."""
    assert StepReport.load(tmp_path / "missing") == StepReport()
