"""Lets torch's DataLoader notice at once that one of its workers, a process of drover, has died.

torch asks the kernel about its children when a SIGCHLD comes. A process that was forked from a template is the
template's child, which sends the signal; how the process ended is known to its `Process`.
"""

from __future__ import annotations

import signal
import sys
from multiprocessing import process
from typing import Any

__all__ = ["install"]

_MODULE = "torch.utils.data._utils.signal_handling"
_loaders: dict[object, set[int]] = {}  # the pids of the workers of each loader


def install() -> None:
    """Extend torch's check of workers, once the program has imported that part of torch."""
    module = sys.modules.get(_MODULE)
    if module is not None and not hasattr(module, "_drover"):
        module._drover = True  # type: ignore[attr-defined]
        _extend(module)


def _extend(module: Any) -> None:
    set_pids, remove_pids, check = (
        module._set_worker_pids,
        module._remove_worker_pids,
        module._error_if_any_worker_fails,
    )

    def set_worker_pids(loader: object, pids: Any) -> None:
        set_pids(loader, pids)
        _loaders[loader] = set(pids)

    def remove_worker_pids(loader: object) -> None:
        _loaders.pop(loader, None)
        remove_pids(loader)

    def error_if_any_worker_fails() -> None:
        check()
        _check()

    module._set_worker_pids = set_worker_pids
    module._remove_worker_pids = remove_worker_pids
    module._error_if_any_worker_fails = error_if_any_worker_fails


def _check() -> None:
    """Raise RuntimeError, in torch's words, for a worker that failed; once for each loader, as torch does."""
    codes = {child.pid: child.exitcode for child in list(process._children) if _loaders}  # type: ignore[attr-defined]
    for loader, pids in list(_loaders.items()):
        for pid in pids:
            if codes.get(pid):
                _loaders[loader] = set()
                raise RuntimeError(f"DataLoader worker (pid {pid}) {_describe(codes[pid])}")


def _describe(code: int) -> str:
    if code < 0:
        return f"is killed by signal: {signal.strsignal(-code)}. "
    return (
        f"exited unexpectedly with exit code {code}. Details are lost due to multiprocessing. "
        "Rerunning with num_workers=0 may give better error trace."
    )
