"""The package as a whole: what it is made of, what it offers, and that the stub of its compiled half is true."""

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
# Given to every class by Python or by nanobind; stubs do not repeat them.
UNSAID = {"__repr__", "__doc__", "__module__"}
TIMEOUT_S = 120


def parameters_of(function: ast.FunctionDef) -> list[str]:
    """Each parameter as `name`, `name=` if it may be left out, after a `*` if only its name will do."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    required = len(plain) - len(given.defaults)
    found = [f"{one.arg}{'=' if index >= required else ''}" for index, one in enumerate(plain)]
    keywords = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return found + [f"*{one.arg}{'=' if default is not None else ''}" for one, default in keywords]


def names_in(body: list[ast.stmt], prefix: str = "") -> dict[str, list[str]]:
    """Functions with their parameters and decorators, classes and what is in them, and attributes."""
    found: dict[str, list[str]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name not in UNSAID:
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
    """Names, parameters, defaults, properties and static methods are those that nanobind sees in the module."""
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
    """Type checkers read it, and it says what CMake says."""
    assert (PACKAGE / "py.typed").is_file()
    match = re.search(r"project\(drover VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert match is not None
    assert drover.__version__ == match[1]


def test_every_public_name_is_there_once_and_documented() -> None:
    """`__all__` has no name that is missing, none twice, and nothing of ours without a docstring."""
    assert len(drover.__all__) == len(set(drover.__all__))
    for name in drover.__all__:
        found = getattr(drover, name)
        if getattr(found, "__module__", "").startswith("drover"):
            assert found.__doc__, name


def import_or_nothing(name: str) -> ModuleType | None:
    """A module of the package; nothing if it needs a library that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "drover").startswith("drover"):
            raise
        return None


def test_every_module_says_what_it_is_and_what_it_offers() -> None:
    """Without those whose library is not installed, or that are multiprocessing's own; `__main__` is a program."""
    names = [module.name for module in pkgutil.iter_modules([str(PACKAGE)])]
    assert "_session" in names
    for name in names:
        module = None if name in {"_core", "__main__"} else import_or_nothing(f"drover.{name}")
        if module is None or not module.__name__.startswith("drover"):
            continue
        assert module.__doc__, name
        missing = [offered for offered in module.__all__ if not hasattr(module, offered)]
        assert not missing, f"drover.{name} has no {missing}"


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter with further variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_import_alone_starts_nothing_and_loads_no_large_library() -> None:
    """No process, no thread, no numpy or torch: programs that import it and do not use it pay little."""
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


def test_tool_in_the_package_is_the_tool() -> None:
    """`python -m drover` takes its arguments and gives its status."""
    tool = PACKAGE / "bin" / "drover"
    assert stat.S_IMODE(tool.stat().st_mode) & stat.S_IXUSR
    version = run_python("-m", "drover", "--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert drover.__version__ in version.stdout
    devices = run_python("-m", "drover", "devices", DROVER_BACKEND="host", DROVER_HOST_DEVICES="2")
    assert "host:1" in devices.stdout
    assert run_python("-m", "drover", "no-such-command").returncode != 0


@pytest.mark.parametrize(
    ("page", "printed"), [("README.md", "the sum is {sum}\n"), ("docs/python.md", "{sum}\n[1, 4, 9]\n")]
)
def test_programs_of_the_pages_run(page: str, printed: str, tmp_path: Path) -> None:
    """They are whole, have no main guard, and print what the pages say."""
    pytest.importorskip("numpy")
    programs = re.findall(
        r"^```python\n(import drover\n.*?)^```$", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(programs) == 1
    (tmp_path / "program.py").write_text(programs[0], encoding="utf-8")
    done = run_python(str(tmp_path / "program.py"))
    assert (done.returncode, done.stdout) == (0, printed.format(sum=sum(range(4_000_000)))), done.stderr
