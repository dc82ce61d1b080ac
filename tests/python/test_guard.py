"""Forks after CUDA was initialised, with a library in its place that knows only whether it was."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
static int is_initialised;
int cuInit(unsigned flags) { (void)flags; is_initialised = 1; return 0; }
int cuDeviceGetCount(int* count) { if (!is_initialised) return 3; *count = 1; return 0; }
"""

# What torch has of it: calls that are queued until CUDA is initialised, and made from there.
TORCH_CUDA = """
import ctypes
_queued = []
_is_initialised = False
def is_initialized(): return _is_initialised
def _lazy_call(call, **_):
    call() if _is_initialised else _queued.append(call)
def init():
    global _is_initialised
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    _is_initialised = True
    for call in _queued: call()
"""

FORK = """
import os, sys, warnings
import drover
{before}
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
print("forked")
"""


@pytest.fixture(name="libraries")
def _libraries(tmp_path: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is installed, and the driver is made with one")
    (tmp_path / "driver.c").write_text(DRIVER, encoding="utf-8")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, tmp_path / "driver.c"], check=True
    )
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("from torch import cuda\nimport json.tool\n", encoding="utf-8")
    (tmp_path / "torch" / "cuda.py").write_text(TORCH_CUDA, encoding="utf-8")
    return tmp_path


def _run(libraries: Path, before: str) -> subprocess.CompletedProcess[str]:
    program = libraries / "program.py"
    program.write_text(FORK.format(before=before), encoding="utf-8")
    environment = {"LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": f"{libraries}:{':'.join(sys.path)}"}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "forked\n"
    return done


def test_a_fork_before_cuda_is_nobodys_business(libraries: Path) -> None:
    """Neither without the driver nor with one that was only loaded."""
    assert _run(libraries, "").stderr == ""
    assert _run(libraries, "import ctypes; ctypes.CDLL('libcuda.so.1')").stderr == ""


def test_a_fork_after_cuda_is_reported_with_what_to_write(libraries: Path) -> None:
    """The warning names the process, the reason and the remedy, at the line of the fork."""
    said = _run(libraries, "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)").stderr
    assert "program.py:5: ForkAfterCudaWarning" in said
    assert "by a library of this process" in said
    assert "import drover as multiprocessing" in said


def test_torch_is_asked_where_it_initialised_cuda(libraries: Path) -> None:
    """The line of the program that first needed a GPU is named."""
    said = _run(libraries, "import torch\ndef train(): torch.cuda.init()\ntrain()").stderr
    assert "program.py:5, in train" in said


def test_processes_of_drover_are_no_forks(libraries: Path) -> None:
    """Nothing is reported for them."""
    said = _run(
        libraries,
        "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        "p = drover.Process(target=int); p.start(); p.join(); os.fork = lambda: 1; os.waitpid = lambda *_: None",
    ).stderr
    assert said == ""
