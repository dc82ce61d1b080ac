"""Types, as checkers see them: right programs are clean, and wrong lines are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RIGHT, WRONG = HERE / "typed_right.py", HERE / "typed_wrong.py"
SOURCES = HERE.parents[1] / "python"


def check_by_mypy(folder: Path, path: Path) -> dict[int, str]:
    """Return the lines that mypy reports, and why."""
    done = _run(
        folder,
        *("mypy", "--strict", "--follow-imports=silent", "--output=json", "--no-incremental", "--config-file="),
        str(path),
        MYPYPATH=str(SOURCES),
    )
    found = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    return {row["line"]: row["message"] for row in found if row["severity"] == "error"}


def check_by_pyright(folder: Path, path: Path) -> dict[int, str]:
    """Return the lines that pyright reports, and why."""
    settings = {
        "include": [str(path)],
        "extraPaths": [str(SOURCES)],
        "typeCheckingMode": "standard",
        "pythonVersion": "{}.{}".format(*sys.version_info),
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    python = ("--pythonpath", sys.executable)
    text = _run(folder, "basedpyright", "--outputjson", *python, "--project", str(folder))
    found = json.loads(text)
    assert found["summary"]["filesAnalyzed"] == 1, text
    return {row["range"]["start"]["line"] + 1: row["message"] for row in found["generalDiagnostics"]}


def _run(folder: Path, module: str, *arguments: str, **environment: str) -> str:
    pytest.importorskip(module)
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("check", [check_by_mypy, check_by_pyright])
def test_right_program_is_clean(check: object, tmp_path: Path) -> None:
    """Its assertions about types hold."""
    assert callable(check)
    assert check(tmp_path, RIGHT) == {}


@pytest.mark.parametrize("check", [check_by_mypy, check_by_pyright])
def test_wrong_lines_are_reported(check: object, tmp_path: Path) -> None:
    """All of them, and no others."""
    assert callable(check)
    found = check(tmp_path, WRONG)
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert wrong
    assert {number: lines[number - 1] for number in wrong - found.keys()} == {}
    assert {number: (lines[number - 1], why) for number, why in found.items() if number not in wrong} == {}


@pytest.mark.parametrize("check", [check_by_mypy, check_by_pyright])
def test_stub_of_the_compiled_module_is_clean(check: object, tmp_path: Path) -> None:
    """It has no error of its own; that it agrees with the module is tested in test_package.py."""
    assert callable(check)
    assert check(tmp_path, SOURCES / "drover" / "_core.pyi") == {}
