"""Awaitable gets and puts for asyncio, served in the order in which they began."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from queue import Empty, Full
from typing import Any

__all__ = ["Turns", "get", "put"]

# Bounds of the backoff, in seconds, between attempts to put into a full queue: no descriptor signals free space.
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02


class Turns:
    """The waiting lines of a queue: in each event loop, one coroutine gets and one puts at a time."""

    def __init__(self) -> None:
        """Create the lines of one queue in this process."""
        self._locks: weakref.WeakKeyDictionary[Any, tuple[asyncio.Lock, asyncio.Lock]] = weakref.WeakKeyDictionary()

    def here(self) -> tuple[asyncio.Lock, asyncio.Lock]:
        """Return the running loop's locks for gets and for puts. asyncio locks are fair."""
        return self._locks.setdefault(asyncio.get_running_loop(), (asyncio.Lock(), asyncio.Lock()))


async def get(turns: Turns, attempt: Callable[[], Any], fileno: Callable[[], int]) -> Any:
    """Repeat `attempt` until it does not raise `Empty`. Its result is returned at once: cancelling loses nothing."""
    async with turns.here()[0]:
        while True:
            with contextlib.suppress(Empty):
                return attempt()
            await _readable(fileno())


async def put(turns: Turns, attempt: Callable[[], None]) -> None:
    """Repeat `attempt` until it does not raise `Full`."""
    pause = _FIRST_PAUSE
    async with turns.here()[1]:
        while True:
            with contextlib.suppress(Full):
                return attempt()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    is_readable = loop.create_future()
    loop.add_reader(fd, lambda: is_readable.done() or is_readable.set_result(None))
    try:
        await is_readable
    finally:
        loop.remove_reader(fd)
