"""The session of this process, started when it is first needed."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from multiprocessing import util
from pathlib import Path

from drover import _core

__all__ = ["current", "ends_with_this_process", "initialise", "session_variable"]

session_variable = "DROVER_SESSION_FD"

_guard = threading.Lock()
_current: _core.Session | None = None
_is_started_here = False


def _keeper() -> str:
    return str(Path(__file__).with_name("bin") / "drover")


def _own_name() -> str:
    script = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    return script or f"python{sysconfig.get_python_version()}"


def initialise() -> None:
    """Say how workers and keepers are started, and how this process ends."""
    _core.init(sys.executable, ["-m", "drover"], _keeper())
    # Last of all: after it no thread but the main one comes back from a wait.
    util.Finalize(None, _core.close, exitpriority=-2000)


def current() -> _core.Session:
    """Give the session into which this process was started, or one of its own; the same at every call."""
    global _current  # noqa: PLW0603 (one for the process)
    if _current is None:
        with _guard:
            if _current is None:
                _current = _join()
                # After everything else that ends with the process: children are joined before.
                util.Finalize(None, _leave, exitpriority=-1000)
    return _current


def ends_with_this_process() -> bool:
    """Tell whether nobody is left to use what this process shared once it ends."""
    return _is_started_here


def _join() -> _core.Session:
    global _is_started_here  # noqa: PLW0603
    if session_variable not in os.environ:
        _is_started_here = True
        return _core.Session.start(_own_name())
    joined = _core.Session.inherited()
    del os.environ[session_variable]  # what this process starts is not in the session by itself
    return joined


def _leave() -> None:
    global _current  # noqa: PLW0603
    _current = None
