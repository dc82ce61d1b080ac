"""What the package does in a process that ends, before the interpreter does: threads of it must be over by then."""

from __future__ import annotations

import functools
import weakref
from multiprocessing import util
from typing import Protocol

__all__ = ["Ending", "call_at_exit"]


class Ending(Protocol):
    """Whatever has something to do at the end."""

    def end_at_exit(self) -> None:
        """Do it."""


_owners: weakref.WeakSet[Ending] = weakref.WeakSet()


def call_at_exit(owner: Ending) -> None:
    """Call `owner.end_at_exit()` once children are joined, if the owner still exists then."""
    _register()
    _owners.add(owner)


@functools.cache
def _register() -> None:
    util.Finalize(None, _call_all, exitpriority=-5)


def _call_all() -> None:
    for owner in list(_owners):
        owner.end_at_exit()
