"""CPython's own tests of multiprocessing, run on drover; see cpython_suite.py."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cpython_cases import CLASSES, LEFT_OUT, NO_TESTS
from programs import passed_tests, run_tests_of_cpython

RUNNER = "cpython_suite.py"
REMEDY = "this interpreter has no test package; on Debian 12 it is libpython3.11-testsuite: `make setup` installs it"


@pytest.mark.parametrize("name", CLASSES)
def test_class_passes(name: str, tmp_path: Path) -> None:
    """Every test of the class passes except those left out, which exist."""
    status, text = run_tests_of_cpython(RUNNER, tmp_path, name)
    if status == NO_TESTS:
        pytest.skip(REMEDY)
    assert status == 0, text
    listed = sum(case.startswith(f"{name}.") for case in LEFT_OUT)
    assert text.count("skipped 'left out: ") == listed, text
    assert passed_tests(text) + listed > 0, text  # in 3.10, MiscTestCase has only the test that is left out


def test_main_module_is_handled_however_a_program_is_started(tmp_path: Path) -> None:
    """CPython's tests of that with the start method "drover"; and its program without a guard runs once."""
    status, text = run_tests_of_cpython("cpython_main_handling.py", tmp_path)
    if status == NO_TESTS:
        pytest.skip(REMEDY)
    assert status == 0, text
    assert passed_tests(text) >= 14, text


def test_suite_tests_the_objects_of_drover() -> None:
    """And not the standard library's."""
    script = """
        import cpython_suite
        import drover
        from drover import _core as core
        case = cpython_suite.WithProcessesTestConnection()
        suite = cpython_suite.suite
        value, raw = suite.Value("i"), case.RawValue("i")
        for made in (case.Pipe()[0], case.Queue(), case.RLock(), case.Value("i").get_lock(), value.get_lock()):
            print(type(made).__module__)
        for made in (raw, case.Array("i", 3).get_obj(), value.get_obj(), suite.copy(raw)):
            print(core.find_shared(drover._session.current(), made) is not None)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if ran.returncode == NO_TESTS:
        pytest.skip(REMEDY)
    modules = ["drover._connection", "drover._queues", *["drover._synchronize"] * 3]
    assert ran.stdout.split() == [*modules, *["True"] * 4], ran.stderr


def test_every_class_is_run_or_has_a_reason(tmp_path: Path) -> None:
    """Also those of newer versions of Python."""
    status, text = run_tests_of_cpython(RUNNER, tmp_path, "--unknown")
    if status == NO_TESTS:
        pytest.skip(REMEDY)
    assert (status, text.split()) == (0, []), text


def test_class_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    """A class that another version of Python has removed is an error."""
    status, text = run_tests_of_cpython(RUNNER, tmp_path, "WithProcessesTestNothing")
    if status == NO_TESTS:
        pytest.skip(REMEDY)
    assert status == 1, text
