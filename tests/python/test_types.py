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
STUB = SOURCES / "drover" / "_core.pyi"
FILES = [str(path) for path in (RIGHT, WRONG, STUB)]  # each checker runs once, on all of them

Reports = dict[str, dict[int, str]]  # the lines of each file that a checker reports, and why


def check_by_mypy(folder: Path) -> Reports:
    """Return what mypy reports."""
    text = _run(
        folder,
        *("mypy", "--strict", "--follow-imports=silent", "--output=json", "--no-incremental", "--config-file="),
        *FILES,
        MYPYPATH=str(SOURCES),
    )
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    found: Reports = {path: {} for path in FILES}
    for row in rows:
        if row["severity"] == "error":
            found[str(folder.joinpath(row["file"]).resolve())][row["line"]] = row["message"]
    return found


def check_by_pyright(folder: Path) -> Reports:
    """Return what pyright reports."""
    settings = {
        "include": FILES,
        "extraPaths": [str(SOURCES)],
        "typeCheckingMode": "standard",
        "pythonVersion": "{}.{}".format(*sys.version_info),
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    python = ("--pythonpath", sys.executable)
    text = _run(folder, "basedpyright", "--outputjson", *python, "--project", str(folder))
    result = json.loads(text)
    assert result["summary"]["filesAnalyzed"] == len(FILES), text
    found: Reports = {path: {} for path in FILES}
    for row in result["generalDiagnostics"]:
        found[row["file"]][row["range"]["start"]["line"] + 1] = row["message"]
    return found


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


@pytest.fixture(scope="module", params=[check_by_mypy, check_by_pyright])
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Give what a checker reports."""
    found: Reports = request.param(tmp_path_factory.mktemp("types"))
    return found


def test_right_program_is_clean(reports: Reports) -> None:
    """Its assertions about types hold."""
    assert reports[str(RIGHT)] == {}


def test_wrong_lines_are_reported(reports: Reports) -> None:
    """All of them, and no others."""
    found = reports[str(WRONG)]
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert wrong
    assert {number: lines[number - 1] for number in wrong - found.keys()} == {}
    assert {number: (lines[number - 1], why) for number, why in found.items() if number not in wrong} == {}


def test_stub_of_the_compiled_module_is_clean(reports: Reports) -> None:
    """It has no error of its own; that it agrees with the module is tested in test_package.py."""
    assert reports[str(STUB)] == {}
