"""scripts/pytest_program.py on small test files that pass, fail, crash and hang."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import pytest_program
from gtest_program import FAILED, PASSED, SKIPPED, Row

MIXED = """
import os, pytest

def test_sees_the_build():
    assert os.environ["DROVER_BUILD_DIR"].endswith("build")

def test_fails():
    assert 1 == 2

def test_is_skipped():
    pytest.skip("no GPU")
"""


def run(tmp_path: Path, text: str, timeout_s: float = 120) -> dict[str, Row]:
    """Run one file of tests."""
    (tmp_path / "test_small.py").write_text(text, encoding="utf-8")
    rows = pytest_program.run_python_tests(
        sys.executable, tmp_path / "build", tmp_path / "out", timeout_s, tests=tmp_path / "test_small.py"
    )
    assert {row.suite for row in rows} == {"python"}
    return {row.test: row for row in rows}


def test_each_test_has_a_row(tmp_path: Path) -> None:
    """With its result, and the full text of a failure."""
    rows = run(tmp_path, MIXED)
    assert {name: row.result for name, row in rows.items()} == {
        "test_small.test_sees_the_build": PASSED,
        "test_small.test_fails": FAILED,
        "test_small.test_is_skipped": SKIPPED,
    }
    assert "assert 1 == 2" in rows["test_small.test_fails"].detail
    assert "no GPU" in rows["test_small.test_is_skipped"].detail


def test_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    """With the name of the missing module."""
    rows = run(tmp_path, "import no_such_module_of_anybody\n")
    assert [row.result for row in rows.values()] == [FAILED]
    assert "no_such_module_of_anybody" in "".join(row.detail for row in rows.values())


def test_crash_and_hang_are_failures_of_the_whole(tmp_path: Path) -> None:
    """Without a report, the end of the output is shown."""
    crashed = run(tmp_path, "import os\ndef test_crashes():\n    os._exit(7)\n")["(program)"]
    assert crashed.result == FAILED
    assert crashed.detail.startswith("pytest ended with status 7")
    hung = run(tmp_path, "import time\ndef test_hangs():\n    time.sleep(600)\n", timeout_s=5)["(program)"]
    assert hung.result == FAILED
    assert hung.detail.startswith("timed out")


def test_interpreter_must_have_the_modules_that_the_build_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one has them; a missing one is named."""
    assert pytest_program.find_python() == (sys.executable, "")
    monkeypatch.setattr(pytest_program, "ROOT", tmp_path)
    monkeypatch.setattr(pytest_program, "NEEDED", "import no_such_module_of_anybody")
    python, reason = pytest_program.find_python()
    assert python is None
    assert reason == f"{sys.executable}: ModuleNotFoundError: No module named 'no_such_module_of_anybody'"


def test_package_is_built_if_its_compiled_half_exists(tmp_path: Path) -> None:
    """Under whatever name the interpreter gives it."""
    assert not pytest_program.is_built(tmp_path)
    (tmp_path / "python/drover").mkdir(parents=True)
    assert not pytest_program.is_built(tmp_path)
    (tmp_path / "python/drover/_core.abi3.so").touch()
    assert pytest_program.is_built(tmp_path)
