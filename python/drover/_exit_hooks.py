"""Hooks that run when a process exits, before the interpreter ends: the package's threads must have ended by then."""

from __future__ import annotations

import functools
import weakref
from multiprocessing import util
from typing import Protocol

__all__ = ["Ending", "call_at_exit"]


class Ending(Protocol):
    """An object with a hook."""

    def end_at_exit(self) -> None:
        """Run the hook."""


_owners: weakref.WeakSet[Ending] = weakref.WeakSet()


def call_at_exit(owner: Ending) -> None:
    """Call `owner.end_at_exit()` after children are joined, unless the owner is gone by then."""
    _register()
    _owners.add(owner)


@functools.cache
def _register() -> None:
    util.Finalize(None, _call_all, exitpriority=-5)


def _call_all() -> None:
    for owner in list(_owners):
        owner.end_at_exit()
