"""The package as a whole: its modules, its public names, and the stub of its compiled half."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import drover
import pytest
from drover import _core

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(drover.__file__).parent
# Every class has them from Python or nanobind; stubs do not repeat them.
IMPLIED = {"__repr__", "__doc__", "__module__"}
TIMEOUT_S = 120


def parameters_of(function: ast.FunctionDef) -> list[str]:
    """Return each parameter as `name`, with a `=` behind if it has a default and a `*` in front if keyword-only."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    found = [f"{one.arg}{'=' if index >= required else ''}" for index, one in enumerate(positional)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found + [f"*{one.arg}{'=' if default is not None else ''}" for one, default in keywords]


def names_in(body: list[ast.stmt], prefix: str = "") -> dict[str, list[str]]:
    """Return functions with their parameters and decorators, classes with their members, and attributes."""
    found: dict[str, list[str]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name not in IMPLIED:
            marks = sorted(ast.unparse(mark) for mark in node.decorator_list)
            is_writable = f"{node.name}.setter" in marks
            found[prefix + node.name] = ["attribute"] if is_writable else [*marks, *parameters_of(node)]
        elif isinstance(node, ast.ClassDef):
            found[prefix + node.name] = ["class"]
            found |= names_in(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.AnnAssign):
            found[prefix + ast.unparse(node.target)] = ["attribute"]
    return found


def test_stub_describes_the_compiled_module() -> None:
    """Names, parameters, defaults, properties and static methods are the same as in nanobind's generated stub."""
    stubgen = pytest.importorskip("nanobind.stubgen")
    made = stubgen.StubGen(_core)
    made.put(_core)
    compiled = names_in(ast.parse(made.get()).body)
    written = names_in(ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8")).body)
    assert {"Queue.put", "Session", "version"} <= compiled.keys()
    names = {name for name in compiled.keys() | written.keys() if not name.endswith("buffer__")}  # since Python 3.12
    wrong = {name for name in names if compiled.get(name) != written.get(name)}
    rows = [f"{name}: compiled {compiled.get(name)}, in _core.pyi {written.get(name)}" for name in sorted(wrong)]
    assert not rows, "\n".join(rows)


def test_package_is_typed_and_has_its_version() -> None:
    """It has py.typed, and the version is that of CMakeLists.txt."""
    assert (PACKAGE / "py.typed").is_file()
    match = re.search(r"project\(drover VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert match is not None
    assert drover.__version__ == match[1]


def test_every_public_name_exists_once_and_is_documented() -> None:
    """`__all__` has no missing name and no duplicate, and our own objects have docstrings."""
    assert len(drover.__all__) == len(set(drover.__all__))
    for name in drover.__all__:
        found = getattr(drover, name)
        if getattr(found, "__module__", "").startswith("drover"):
            assert found.__doc__, name


def import_if_possible(name: str) -> ModuleType | None:
    """Import a module of the package; return None if it needs a library that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "drover").startswith("drover"):
            raise
        return None


def test_every_module_has_a_docstring_and_lists_its_names() -> None:
    """Except modules whose library is not installed, aliases of multiprocessing's, and `__main__`, a program."""
    names = [module.name for module in pkgutil.iter_modules([str(PACKAGE)])]
    assert "_session" in names
    for name in names:
        module = None if name in {"_core", "__main__"} else import_if_possible(f"drover.{name}")
        if module is None or not module.__name__.startswith("drover"):
            continue
        assert module.__doc__, name
        missing = [listed for listed in module.__all__ if not hasattr(module, listed)]
        assert not missing, f"drover.{name} has no {missing}"


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter with additional environment variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_import_starts_nothing_and_loads_no_large_library() -> None:
    """No process, no thread, and neither numpy nor torch."""
    program = (
        "import sys, threading, pathlib, drover\n"
        "children = pathlib.Path('/proc/self/task').glob('*/children')\n"
        "assert not ''.join(one.read_text() for one in children), 'a process was started'\n"
        "assert threading.active_count() == 1, 'a thread was started'\n"
        "loaded = {'numpy', 'torch', 'cupy', 'jax', 'numba'} & sys.modules.keys()\n"
        "assert not loaded, loaded\n"
    )
    done = run_python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_package_contains_the_tool() -> None:
    """`python -m drover` runs it with its arguments and exits with its status."""
    tool = PACKAGE / "bin" / "drover"
    assert stat.S_IMODE(tool.stat().st_mode) & stat.S_IXUSR
    version = run_python("-m", "drover", "--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert drover.__version__ in version.stdout
    devices = run_python("-m", "drover", "devices", DROVER_BACKEND="host", DROVER_HOST_DEVICES="2")
    assert "host:1" in devices.stdout
    assert run_python("-m", "drover", "no-such-command").returncode != 0
