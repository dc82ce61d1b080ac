"""What a process that crashes leaves behind: the stacks of its Python threads."""

from __future__ import annotations

import contextlib
import faulthandler

__all__ = ["show"]

_STANDARD_ERROR = 2


def show() -> None:
    """Let a crash of this process, such as a segmentation fault, write the stacks to its standard error."""
    if not faulthandler.is_enabled():
        with contextlib.suppress(OSError):  # there may be no standard error
            faulthandler.enable(_STANDARD_ERROR)
