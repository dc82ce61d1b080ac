"""Warns when a process forks after CUDA was initialised: every CUDA call of the child would fail or hang."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings

__all__ = ["ForkAfterCudaWarning", "install", "is_cuda_initialised"]

_LIBRARY = "libcuda.so.1"
_NOT_INITIALIZED = 3
_FRAMEWORKS = ("torch", "cupy", "jax", "numba", "tensorflow", "pycuda")
_REMEDY = (
    "start processes with drover.Process or drover.Pool (`import drover as multiprocessing`), or use "
    'multiprocessing.set_start_method("spawn"), or fork before the first use of a GPU'
)

_first_seen = ""


class ForkAfterCudaWarning(RuntimeWarning):
    """The process forked after it had initialised CUDA."""


def is_cuda_initialised() -> bool:
    """Return whether this process has initialised CUDA. Loads and initialises nothing."""
    try:
        driver = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        count = ctypes.c_int()
        return driver.cuDeviceGetCount(ctypes.byref(count)) != _NOT_INITIALIZED
    except (OSError, AttributeError):
        return False


def _remember_torch() -> None:
    """Register a callback with torch that records where CUDA is initialised."""
    cuda = sys.modules.get("torch.cuda")
    queue = getattr(cuda, "_lazy_call", None)
    if queue is None or getattr(cuda, "_drover_guard", False):
        return
    cuda._drover_guard = True
    if not cuda.is_initialized():
        queue(_note_place)


def _note_place() -> None:
    global _first_seen  # noqa: PLW0603 (one for the process)
    import traceback  # noqa: PLC0415 (imported only if needed)

    frames = [
        frame
        for frame in traceback.extract_stack()
        if "/torch/" not in frame.filename and not frame.filename.startswith("<frozen") and frame.filename != __file__
    ]
    if frames and not _first_seen:
        _first_seen = f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}"


def _where() -> str:
    if _first_seen:
        return f"at {_first_seen}"
    loaded = [name for name in _FRAMEWORKS if name in sys.modules]
    return f"by one of {', '.join(loaded)}" if loaded else "by a library in this process"


class _Watch:
    """An import hook that finds no modules, but notices when torch has been imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Check whether torch is imported by now; every later import, torch's own submodules included, gets here."""
        del name, path, target
        with contextlib.suppress(Exception):  # torch may be half imported, by any thread
            _remember_torch()


def _before_fork() -> None:
    if is_cuda_initialised():
        warnings.warn(
            f"process {os.getpid()} forks after CUDA was initialised in it ({_where()}): every use of CUDA in the "
            f"child will fail or hang.\n  what to do: {_REMEDY}",
            ForkAfterCudaWarning,
            stacklevel=2,
        )


def install() -> None:
    """Install the import hook and the check before each fork."""
    _remember_torch()
    sys.meta_path.insert(0, _Watch)  # in front, so that it sees every import
    os.register_at_fork(before=_before_fork)
