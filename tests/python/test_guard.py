"""Warnings about forks after CUDA was initialised, with a stand-in for the driver library."""

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

# Like torch.cuda: queues calls until CUDA is initialised, then runs them.
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
        pytest.skip("a C compiler is needed to build the stand-in driver")
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


def test_fork_before_cuda_gives_no_warning(libraries: Path) -> None:
    """Without the driver, or with one that is only loaded."""
    assert _run(libraries, "").stderr == ""
    assert _run(libraries, "import ctypes; ctypes.CDLL('libcuda.so.1')").stderr == ""


def test_fork_after_cuda_warns_with_a_remedy(libraries: Path) -> None:
    """The warning names the process, the reason and the remedy, at the line of the fork."""
    stderr = _run(libraries, "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)").stderr
    assert "program.py:5: ForkAfterCudaWarning" in stderr
    assert "by a library in this process" in stderr
    assert "import drover as multiprocessing" in stderr


def test_warning_names_the_line_where_torch_initialised_cuda(libraries: Path) -> None:
    """The line of the program that first used a GPU."""
    stderr = _run(libraries, "import torch\ndef train(): torch.cuda.init()\ntrain()").stderr
    assert "program.py:5, in train" in stderr


def test_starting_a_drover_process_gives_no_warning(libraries: Path) -> None:
    """It does not fork this process."""
    stderr = _run(
        libraries,
        "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        "p = drover.Process(target=int); p.start(); p.join(); os.fork = lambda: 1; os.waitpid = lambda *_: None",
    ).stderr
    assert stderr == ""
