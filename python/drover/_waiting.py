"""Whether this process itself could end a wait of the calling thread."""

from __future__ import annotations

import signal
import sys
import threading

__all__ = ["can_be_ended_here"]

# Threads that run none of the program's functions.
_OWN = frozenset(
    f"drover {part}" for part in ("descriptors", "executor", "parent", "queue feeder", "reader", "tracker")
)


def can_be_ended_here() -> bool:
    """Return whether another Python thread, or a handler of a signal, could end a wait of this thread."""
    own = {thread.ident for thread in threading.enumerate() if thread.name in _OWN}
    return bool(sys._current_frames().keys() - own - {threading.get_ident()}) or _has_handlers()


def _has_handlers() -> bool:
    handlers = map(signal.getsignal, signal.valid_signals())
    return any(callable(handler) and handler is not signal.default_int_handler for handler in handlers)
