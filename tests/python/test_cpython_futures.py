"""CPython's own tests of process pools of concurrent.futures with our executor; see cpython_futures.py."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cpython_futures import CLASSES, LEFT_OUT, NO_TESTS, advice

RUNNER = Path(__file__).with_name("cpython_futures.py")
# Ends a run that hangs; says nothing of how fast it must be.
LIMIT_S = 240
# Left out where they exist; not every version of Python has them.
NOT_EVERYWHERE = {
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context",
    "ProcessPoolExecutorTest.test_python_finalization_error",
    "ExecutorDeadlockTest.test_gh105829_should_not_deadlock_if_wakeup_pipe_full",
}


def run_tests(folder: Path, name: str) -> tuple[int, str]:
    """Run a class of tests in a folder where they may leave files; the exit status, and what was written."""
    with subprocess.Popen(
        [sys.executable, str(RUNNER), name],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it writes the stacks of its threads
            text, _ = process.communicate()
            pytest.fail(f"it hangs:\n{text}")
    if process.returncode == NO_TESTS:
        pytest.skip(advice())
    return process.returncode, text


@pytest.mark.parametrize(("name", "least"), CLASSES.items())
def test_class_passes(name: str, least: int, tmp_path: Path) -> None:
    """Every test of the class passes but for those that are left out, and they are as many as there were."""
    status, text = run_tests(tmp_path, name)
    assert status == 0, text
    ran = re.search(r"^Ran (\d+) tests? in", text, re.MULTILINE)
    assert ran is not None, text
    assert int(ran[1]) - text.count("... skipped ") >= least, text
    listed = {case for case in LEFT_OUT if case.startswith(f"{name}.")}
    assert len(listed - NOT_EVERYWHERE) <= text.count("skipped 'left out: ") <= len(listed), text


def test_class_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    """What another version of Python has no more is not passed over."""
    status, text = run_tests(tmp_path, "NoSuchTests")
    assert (status, "NoSuchTests" in text) == (1, True), text


def test_what_is_left_out_has_a_reason_of_a_kind() -> None:
    """It looks at what is private to the standard executor, or at what is said to differ."""
    assert {reason.split(":")[0] for reason in LEFT_OUT.values()} == {"private", "differs"}
