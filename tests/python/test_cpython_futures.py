"""CPython's own tests of concurrent.futures process pools, run with our executor; see cpython_futures.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpython_futures import CLASSES, LEFT_OUT, NO_TESTS, advice
from programs import passed_tests, run_tests_of_cpython

# Tests that only some versions of Python have.
NOT_EVERYWHERE = {
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context",
    "ProcessPoolExecutorTest.test_python_finalization_error",
    "ExecutorDeadlockTest.test_gh105829_should_not_deadlock_if_wakeup_pipe_full",
}


def run_tests(folder: Path, name: str) -> tuple[int, str]:
    """Run a class of tests; return the exit status and the output."""
    status, text = run_tests_of_cpython("cpython_futures.py", folder, name)
    if status == NO_TESTS:
        pytest.skip(advice())
    return status, text


@pytest.mark.parametrize(("name", "least"), CLASSES.items())
def test_class_passes(name: str, least: int, tmp_path: Path) -> None:
    """Every test of the class passes except those left out, and there are no fewer than expected."""
    status, text = run_tests(tmp_path, name)
    assert status == 0, text
    assert passed_tests(text) >= least, text
    listed = {case for case in LEFT_OUT if case.startswith(f"{name}.")}
    assert len(listed - NOT_EVERYWHERE) <= text.count("skipped 'left out: ") <= len(listed), text


def test_class_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    """A class that another version of Python has removed is an error."""
    status, text = run_tests(tmp_path, "NoSuchTests")
    assert (status, "NoSuchTests" in text) == (1, True), text


def test_every_test_left_out_has_a_reason() -> None:
    """It tests private details of the standard executor, or a documented difference."""
    assert {reason.split(":")[0] for reason in LEFT_OUT.values()} == {"private", "differs"}
