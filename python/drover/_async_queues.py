"""Queues in asyncio: gets and puts that are awaited, in the order in which they began."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from queue import Empty, Full
from typing import Any

__all__ = ["Turns", "get", "put"]

# Seconds between looks for room in a full queue, of which no descriptor tells: from the first to the longest.
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02


class Turns:
    """Who is next: in each event loop one coroutine gets and one puts, while others wait behind them."""

    def __init__(self) -> None:
        """For one queue of this process."""
        self._locks: weakref.WeakKeyDictionary[Any, tuple[asyncio.Lock, asyncio.Lock]] = weakref.WeakKeyDictionary()

    def here(self) -> tuple[asyncio.Lock, asyncio.Lock]:
        """Give the locks of the loop that runs, for gets and puts; they are given in the order they are asked for."""
        return self._locks.setdefault(asyncio.get_running_loop(), (asyncio.Lock(), asyncio.Lock()))


async def get(turns: Turns, attempt: Callable[[], Any], fileno: Callable[[], int]) -> Any:
    """Attempt until it raises no `Empty`. What it gives is returned at once, so that cancelling loses nothing."""
    async with turns.here()[0]:
        while True:
            with contextlib.suppress(Empty):
                return attempt()
            await _readable(fileno())


async def put(turns: Turns, attempt: Callable[[], None]) -> None:
    """Attempt until it raises no `Full`."""
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
