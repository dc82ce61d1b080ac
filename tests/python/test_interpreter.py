"""Programs that embed Python: drover can be imported, and starts nothing by itself that is no interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HEAVY = """
import os, sys
from drover import _ahead, _early, _template
_early._HEAVY |= {"heavy_one"}
_template.SAFE = (*_template.SAFE, "heavy_one")
_ahead.cores = lambda: 2
sys.path.insert(0, FOLDER)
import heavy_one
print(_template._state.early is not None)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a module that begins a template; the settings are the default."""
    monkeypatch.delenv("DROVER_START_AHEAD", raising=False)
    tmp_path.joinpath("heavy_one.py").write_text("", encoding="utf-8")
    return tmp_path


def output(*command: str) -> str:
    """Return what a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def begins(folder: Path, before: str, *interpreter: str) -> bool:
    """Return whether a program that runs `before` first begins a template by itself."""
    program = f"FOLDER = {str(folder)!r}\nimport sys\n{before}\n{HEAVY}"
    return output(*(interpreter or (sys.executable,)), "-c", program).splitlines()[-1] == "True"


def test_template_begins_in_interpreters(folder: Path) -> None:
    """Also for programs without a file, and for those that name an interpreter themselves."""
    assert begins(folder, "")
    assert begins(folder, f"import multiprocessing; multiprocessing.set_executable({sys.executable!r})")


@pytest.mark.parametrize("name", [None, "", "python3", "/usr/bin/env", "/nowhere/python3"])
def test_no_template_begins_where_the_interpreter_is_unknown(folder: Path, name: str | None) -> None:
    """If the program that embeds Python has no interpreter, or another one than it runs."""
    assert not begins(folder, f"sys.executable = {name!r}")


def test_no_template_begins_for_another_interpreter(folder: Path) -> None:
    """Such as the first one that is found in PATH."""
    other = folder / "python3"
    shutil.copy(sys.executable, other)
    assert not begins(folder, f"sys.executable = {str(other)!r}")


def test_no_template_begins_in_a_program_that_is_its_own_interpreter(folder: Path) -> None:
    """It would run a second time."""
    assert not begins(folder, "sys.frozen = True")
    program = folder / "app"
    shutil.copy(Path(sys.executable).resolve(), program)
    base = sysconfig.get_config_var("installed_base")
    paths = os.pathsep.join(path for path in sys.path if path)
    assert not begins(folder, "", "env", f"PYTHONHOME={base}", f"PYTHONPATH={paths}", str(program))


@pytest.mark.parametrize("name", [None, ""])
def test_program_without_arguments_and_interpreter_uses_queues(name: str | None) -> None:
    """Processes need an interpreter, which the program can name."""
    program = f"""
import sys
real, arguments = sys.executable, sys.argv
sys.executable = {name!r}
del sys.argv
import drover
queue = drover.Queue()
queue.put({{1}})
print(queue.get())
sys.argv = arguments
for start in (lambda: drover.Process(target=print).start(), lambda: drover.Pool(1)):
    try:
        start()
    except drover.Unsupported as error:
        print("set_executable" in str(error))
print(drover.warm_up())
import multiprocessing
multiprocessing.set_executable(real)
with drover.Pool(1) as pool:
    print(pool.map(abs, [-1]))
"""
    assert output(sys.executable, "-c", program).splitlines() == ["{1}", "True", "True", "False", "[1]"]
