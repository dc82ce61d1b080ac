"""The entry point of a child process: joins the session of its parent and fetches its work."""

from __future__ import annotations

import sys
from multiprocessing import process, resource_tracker, spawn
from typing import Any

import drover
from drover import _core, _crashes, _namespaces, _nesting, _objects, _session

__all__ = ["main"]

_ENDED = "drover: the parent ended before this process started"


def main() -> None:
    """Run the process object that the parent sent, and exit with its status."""
    handle, tracker, parent = sys.argv[2:5]
    resource_tracker._resource_tracker._fd = int(tracker)
    sys.exit(_run(handle, int(parent)))


def _run(handle: str, parent: int) -> int:
    _crashes.show()
    mailbox = _open(handle)
    process.current_process()._inheriting = True
    try:
        preparation = _take(mailbox)
        drover.set_start_method(preparation.pop("drover_method"), force=True)
        _nesting.adopt(preparation)
        spawn.prepare(preparation)
        _namespaces.follow(preparation)
        own = _take(mailbox)
    finally:
        del process.current_process()._inheriting
    del mailbox
    return own._bootstrap(parent_sentinel=parent)


def _open(handle: str) -> _core.Queue:
    """Join the session, end with it from now on, and open the queue that has the work."""
    try:
        _session.current().tie()
        return _core.Queue.open(_session.current(), handle)
    except (drover.PeerLost, drover.NotFound):
        raise SystemExit(_ENDED) from None


def _take(mailbox: _core.Queue) -> Any:
    try:
        got = mailbox.get(60.0)
    except drover.PeerLost:
        raise SystemExit(_ENDED) from None
    if not isinstance(got, tuple):
        raise SystemExit(_ENDED)
    return _objects.loads(*got)
