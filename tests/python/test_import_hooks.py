"""Hooks for imports of other libraries: run once, after an import that succeeded, and hidden from the program."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import BuiltinImporter
from pathlib import Path

import pytest
from drover import _import_hooks

NAME = "hooked_module"
BUILT_IN = "_symtable"


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Watch a module that can be imported; return the calls of the hook."""
    calls: list[str] = []
    tmp_path.joinpath(f"{NAME}.py").write_text(
        "import sys\nif getattr(sys, '_must_fail', False):\n    raise RuntimeError\nvalue = 1\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    _import_hooks.call_once_imported(NAME, lambda: calls.append(sys.modules[NAME].value))
    yield calls
    sys.meta_path[:] = before
    sys.modules.pop(NAME, None)


def test_hook_runs_once_when_the_module_is_complete(called: list[int]) -> None:
    """Reloading is no import; the module has its own loader."""
    module = importlib.import_module(NAME)
    assert called == [1]
    assert (
        type(module.__loader__) is type(module.__spec__.loader) is type(importlib.import_module("queue").__loader__)
    )
    importlib.reload(module)
    del sys.modules[NAME]
    importlib.import_module(NAME)
    assert called == [1]
    _import_hooks.call_once_imported(NAME, lambda: called.append(2))
    assert called == [1, 2]


def test_import_that_fails_does_not_count(called: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one runs the hook."""
    monkeypatch.setattr(sys, "_must_fail", True, raising=False)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            importlib.import_module(NAME)
        assert NAME not in sys.modules
    monkeypatch.setattr(sys, "_must_fail", False)
    importlib.import_module(NAME)
    assert called == [1]


def test_program_that_looks_for_the_module_imports_it_later(called: list[int]) -> None:
    """What it finds behaves as without the hook."""
    for _ in range(2):
        spec = importlib.util.find_spec(NAME)
        assert spec is not None
        assert "value = 1" in spec.loader.get_source(NAME)
        assert not spec.loader.is_package(NAME)
    assert called == []
    module = importlib.import_module(NAME)
    assert called == [1]
    assert "value = 1" in inspect.getsource(module)


def test_several_hooks_and_threads(called: list[int]) -> None:
    """Each hook runs once."""
    _import_hooks.call_once_imported(NAME, lambda: called.append(2))
    _import_hooks.call_once_imported(NAME, lambda: 1 / 0)
    threads = [threading.Thread(target=importlib.import_module, args=(NAME,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(called) == [1, 2]


def test_other_imports_find_their_modules_meanwhile(called: list[int]) -> None:
    """A thread that goes through the finders misses none of them while a hook of another module is done."""

    class Meanwhile:
        """Imports the watched module while another one is looked for."""

        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            """Find nothing."""
            if name == BUILT_IN:
                importlib.import_module(NAME)

    sys.meta_path.insert(sys.meta_path.index(BuiltinImporter), Meanwhile)
    sys.modules.pop(BUILT_IN, None)
    assert importlib.import_module(BUILT_IN).__name__ == BUILT_IN
    assert called == [1]


def test_module_that_does_not_exist(called: list[int]) -> None:
    """Its import fails as without the hook."""
    _import_hooks.call_once_imported("missing_module", lambda: called.append(3))
    assert importlib.util.find_spec("missing_module") is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'missing_module'"):
        importlib.import_module("missing_module")
    assert called == []


def test_watched_module_runs_as_a_program(called: list[int], tmp_path: Path) -> None:
    """By `python -m`, which asks the loader for code."""
    tmp_path.joinpath("shown.py").write_text("print(__name__)\n", encoding="utf-8")
    program = (
        "import runpy, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from drover import _import_hooks\n"
        "_import_hooks.call_once_imported('shown', print)\n"
        "runpy.run_module('shown', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "__main__\n", done.stderr
    assert called == []


def test_import_of_drover_torch_that_fails_changes_nothing() -> None:
    """Torch stays as it was, and arrays of torch are sent by torch's own reducers."""
    pytest.importorskip("torch")
    program = """
import sys, warnings
import torch
before = torch.Tensor.share_memory_, torch.Tensor.is_shared
import drover
from drover import _objects, _sharing
del torch.nn.Module.share_memory, torch.nn.Parameter
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    payload = _objects.dumps([{1}])
    assert _objects.loads(*payload) == [{1}]
    assert _objects.loads(*_objects.dumps([{2}])) == [{2}]
print([str(one.message).split(",")[0] for one in seen if "arrays of" in str(one.message)])
print("drover.torch" in sys.modules, torch.Tensor in _sharing.movers, torch.Tensor in _objects.alone)
print(torch.Tensor.share_memory_ is before[0], torch.Tensor.is_shared is before[1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == [
        "['arrays of torch are pickled by the library itself']",
        "False False False",
        "True True",
    ], done.stderr


def test_drover_torch_may_be_imported_again() -> None:
    """By importlib.reload, or after it was removed: torch's methods are extended once."""
    pytest.importorskip("torch")
    program = """
import importlib, sys
import torch
original = torch.Tensor.is_shared, torch.cuda.CUDAGraph.capture_begin
import drover.torch
from drover import _objects, _torch_share
for _ in range(3):
    importlib.reload(_torch_share)
    importlib.reload(drover.torch)
    del sys.modules["drover.torch"]
    import drover.torch
print(torch.Tensor.is_shared._drover_original is original[0])
print(torch.cuda.CUDAGraph.capture_begin._drover_original is original[1])
tensor = drover.torch.share(torch.ones(3))
print(tensor.is_shared(), torch.ones(3).is_shared())
back = _objects.loads(*_objects.dumps([tensor]))[0]
back.fill_(2)
print(tensor.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["True", "True", "True False", "[2.0, 2.0, 2.0]"], done.stderr
