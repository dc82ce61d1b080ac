"""The interpreter that processes are started with; programs that embed Python may have none."""

from __future__ import annotations

import contextlib
import os
import sys
from multiprocessing import spawn

from drover._errors import Unsupported

__all__ = ["find", "is_certain", "path"]

_OWN = "/proc/self/exe"


def find() -> str | None:
    """Return the path of the interpreter as multiprocessing knows it; None if there is none."""
    name = os.fsdecode(spawn.get_executable() or "")
    return name if "/" in name else None


def path() -> str:
    """Return the path of the interpreter. Raises Unsupported if there is none."""
    if (found := find()) is None:
        raise Unsupported(
            f"program {os.getpid()} has no Python interpreter to start processes with: sys.executable is "
            f"{sys.executable!r}, as in programs that embed Python",
            "call multiprocessing.set_executable with the path of an interpreter of this version, before any process",
        )
    return found


def is_certain() -> bool:
    """Return whether the interpreter is one surely: the one that runs this program, or one that the program named.

    A program that embeds Python may be its own sys.executable, so that starting that would run the program again; or
    find any other interpreter there.
    """
    with contextlib.suppress(OSError):
        found = find()
        program = os.path.basename(os.path.realpath(found)).lower() if found is not None else ""
        if found is None or "python" not in program or getattr(sys, "frozen", False):
            return False
        return found != sys.executable or os.path.samefile(found, _OWN)
    return False
