"""The session of this process, joined or started on first use."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing import util

from drover import _core, _early

__all__ = ["current", "ends_with_this_process", "initialise", "session_variable"]

session_variable = "DROVER_SESSION_FD"
_ANY = "/proc/self/exe"  # where Python is embedded; pools replace it, or raise an error

_guard = threading.Lock()
_current: _core.Session | None = None
_is_started_here = False


def _keeper() -> str:
    return os.path.join(os.path.dirname(__file__), "bin", "drover")


def _own_name() -> str:
    name = (getattr(sys, "argv", None) or [""])[0]  # programs that embed Python may have no arguments
    script = os.path.basename(name) if name not in ("", "-c", "-m") else ""
    return script or f"python{sys.version_info.major}.{sys.version_info.minor}"


def initialise() -> None:
    """Set the commands that start workers and keepers, and register the end of this process."""
    _core.init(sys.executable if "/" in (sys.executable or "") else _ANY, ["-m", "drover"], _keeper())
    # The last finalizer: from then on only the main thread returns from C++ waits.
    util.Finalize(None, _core.close, exitpriority=-2000)


def current() -> _core.Session:
    """Return the session that this process was started in, otherwise one of its own; always the same one."""
    global _current  # noqa: PLW0603 (one for the process)
    if _current is None:
        with _guard:
            if _current is None:
                _early.begin()
                _current = _join()
                # After almost all other finalizers: children are joined before.
                util.Finalize(None, _leave, exitpriority=-1000)
    return _current


def ends_with_this_process() -> bool:
    """Return whether this process started the session, so that its end frees all that it shared."""
    return _is_started_here


def _join() -> _core.Session:
    global _is_started_here  # noqa: PLW0603
    if session_variable not in os.environ:
        _is_started_here = True
        return _core.Session.start(_own_name())
    joined = _core.Session.inherited()
    del os.environ[session_variable]  # not for programs that this process starts
    return joined


def _leave() -> None:
    global _current  # noqa: PLW0603
    _current = None
