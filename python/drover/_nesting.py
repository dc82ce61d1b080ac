"""Refuses pools and processes that a module starts while it is imported, in processes that it started itself.

The processes would import the module as well, and start others without end. multiprocessing refuses it for what a
process imports before its work; here functions and arguments of tasks are loaded later, and import modules, too.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

__all__ = ["add_to", "adopt"]

_KEY = "drover_importing"
_MOST = 1  # A module may start processes while it is imported by one of those that it started; theirs may not.

_importing: list[str] = []  # the modules whose imports led to this process, from the program on
_seen: dict[str, object] = {}  # the specs of modules that have started processes while they were imported here


def add_to(preparation: dict[str, Any]) -> None:
    """Note in the preparation data of a process which modules are importing themselves while it starts.

    Raises RuntimeError if a module has started processes in this way before, in those that led to this one.
    """
    module = _module_being_imported()
    if module is not None and (times := _importing.count(module)) > 0:
        spec = getattr(sys.modules.get(module), "__spec__", None)
        is_first = _seen.setdefault(module, spec) is spec  # or the import has failed, and is tried for each task
        if times > _MOST or not is_first:
            raise RuntimeError(_refusal(module))
    preparation[_KEY] = [*_importing, module] if module is not None else _importing


def adopt(preparation: dict[str, Any]) -> None:
    """Take over, in a new process, what the process that started it has noted."""
    _importing[:] = preparation.pop(_KEY, [])


def _module_being_imported() -> str | None:
    """Return the innermost module that this thread is importing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load_unlocked" and "importlib" in frame.f_code.co_filename:
            return str(frame.f_locals.get("name"))
        frame = frame.f_back
    return None


def _refusal(module: str) -> str:
    return (
        f"module {module} starts a pool or a process while it is imported, also here in process {os.getpid()}, which "
        "that import has started: each process that runs a function of the module imports it, and would start others "
        "without end\n  what to do: start pools and processes in a function, or in the main module under "
        "`if __name__ == '__main__':`"
    )
