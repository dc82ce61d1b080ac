"""Begins the template early: while the program still imports its modules, on a core that has nothing else to do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from importlib.machinery import PathFinder
from multiprocessing import process

from drover import _ahead, _template

__all__ = ["begin", "install"]

# Modules whose import takes so long that a template begins beside it; the measurements are in decision 023.
_HEAVY = frozenset({"cupy", "jax", "numba", "pandas", "sklearn", "torch", "torchvision"})
# Variables that drover's own processes, and the programs that a worker starts, find when they import the package.
_MARKS = ("DROVER_SESSION_FD", "DROVER_WORKER", "DROVER_TEMPLATE_ROOM")
_MOST_FRAMES = 40
_GET_SUBREAPER = 37  # PR_GET_CHILD_SUBREAPER


def install() -> None:
    """Watch the imports of this program, unless drover has started it."""
    if not any(mark in os.environ for mark in _MARKS):
        _watched.append(os.getpid())
        sys.meta_path.insert(0, _Watch)


def begin() -> None:
    """Begin a template if the program has imported a heavy module; for its first shared object.

    Raises InvalidArgument if the setting is not valid, which imports do not.
    """
    if _ahead.idle_seconds() > 0 and any(name in sys.modules for name in _HEAVY):
        _begin(None)


def _begin(module: str | None) -> None:
    """Begin the template, or let it follow; failures are not the program's, whose first pool will see them."""
    with contextlib.suppress(Exception):
        if (
            _is_main_process()
            and not _adopts_orphans()
            and _ahead.cores() >= 2
            and (seconds := _ahead.idle_seconds()) > 0
        ):
            _template.begin(module, seconds, may_start=module is None or module in _HEAVY)


class _Watch:
    """An import hook that finds no modules, but sees which the program is about to import."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Begin or extend the template if a large module is being imported, not only looked for."""
        del target
        if path is None and name in _template.SAFE and _is_being_imported(name) and PathFinder.find_spec(name):
            _begin(name)


_watched: list[int] = []  # the process that watches its imports, not one that was forked from it


def _is_being_imported(name: str) -> bool:
    """Return whether an import statement asks, and not importlib.util.find_spec."""
    frame = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == "_find_and_load_unlocked" and frame.f_locals.get("name") == name:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _is_main_process() -> bool:
    """Return whether this process is neither forked nor started by multiprocessing."""
    is_child = process.parent_process() is not None or getattr(process.current_process(), "_inheriting", False)
    return os.getpid() in _watched and not is_child


def _adopts_orphans() -> bool:
    """Return whether the template, which has no parent, would become a child of this process."""
    is_subreaper = ctypes.c_int()
    ctypes.CDLL(None).prctl(_GET_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
    return os.getpid() == 1 or is_subreaper.value != 0
