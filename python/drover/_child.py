"""The first moments of a child process: it joins its parent's session and gets to know what to run."""

from __future__ import annotations

import sys
from multiprocessing import process, resource_tracker, spawn

import drover  # noqa: F401 (the start method that the parent may name)
from drover import _core, _objects, _session

__all__ = ["main"]


def main() -> None:
    """Run what the parent sent, and exit with its status."""
    handle, tracker, parent = sys.argv[2:5]
    resource_tracker._resource_tracker._fd = int(tracker)
    sys.exit(_run(handle, int(parent)))


def _run(handle: str, parent: int) -> int:
    mailbox = _core.Queue.open(_session.current(), handle)
    process.current_process()._inheriting = True
    try:
        spawn.prepare(_take(mailbox))
        own = _take(mailbox)
    finally:
        del process.current_process()._inheriting
    del mailbox
    return own._bootstrap(parent_sentinel=parent)


def _take(mailbox: _core.Queue) -> object:
    got = mailbox.get(60.0)
    if not isinstance(got, tuple):
        raise SystemExit("drover: the parent sent nothing; it may have been killed")
    return _objects.loads(*got)
