"""torch.multiprocessing.spawn on drover's processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from typing import Any

from torch.multiprocessing.spawn import ProcessContext, start_processes

from drover._context import DroverContext

__all__ = ["spawn"]

_PR_SET_PDEATHSIG = 1


class _Task:
    """The function of the processes."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, index: int, *args: Any) -> None:
        # torch has asked the kernel for a SIGINT when this process's parent ends, which may be drover's template.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
        threading.Thread(target=_end_with_parent, name="drover parent", daemon=True).start()
        self._function(index, *args)


def _end_with_parent() -> None:
    """Do what torch asked the kernel for: interrupt this process once the one that called `spawn` has ended."""
    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)


def spawn(  # noqa: PLR0913, PLR0917 (torch's parameters)
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str | None = None,
) -> ProcessContext | None:
    """Run `fn(index, *args)` in `nprocs` processes; the same as `torch.multiprocessing.spawn`.

    The processes are those of `drover.Process`, so tensors in `args` go by reference, also on GPUs. If one of them
    fails, the others are ended, and `torch.multiprocessing.ProcessRaisedException` with the traceback, or
    `ProcessExitedException`, is raised. An interrupt ends all of them, and so does the end of this process.

    Returns None when all have ended; with `join=False` at once, torch's `ProcessContext`. `start_method` is accepted
    as torch's, and not used.

    >>> import drover.torch
    >>> def work(rank, total):
    ...     total += rank + 1
    >>> total = drover.torch.zeros(1)
    >>> drover.torch.spawn(work, (total,), nprocs=1)
    >>> total
    tensor([1.])
    """
    del start_method
    context = start_processes(_Task(fn), args, nprocs, False, daemon, DroverContext._name)
    if not join:
        return context
    try:
        while not context.join():
            pass
    except KeyboardInterrupt:
        for process in context.processes:
            process.terminate()
        for process in context.processes:
            process.join()
        raise
    finally:
        for path in getattr(context, "error_files", ()):  # torch leaves them behind
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return None
