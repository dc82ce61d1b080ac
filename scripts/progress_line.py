"""One line of progress for work that would print hundreds."""

from __future__ import annotations

import sys
import time

PAUSE_S = 10.0  # between lines where they cannot be overwritten


class ProgressLine:
    """One line that is overwritten on a terminal; elsewhere a line every ten seconds."""

    def __init__(self, name: str) -> None:
        """Begin with nothing printed."""
        self._name = name
        self._can_overwrite = sys.stdout.isatty()
        self._begin = self._printed = time.monotonic()
        self._is_open = False

    def show(self, done: str, total: str) -> None:
        """Say how far the work is."""
        now = time.monotonic()
        text = f"{self._name}: {done} of {total}, {now - self._begin:.0f} s"
        if self._can_overwrite:
            print(f"\r{text}\033[K", end="", flush=True)
            self._is_open = True
        elif now - self._printed >= PAUSE_S:
            self._printed = now
            print(text, flush=True)

    def close(self) -> None:
        """End the line, before other text."""
        if self._is_open:
            print()
        self._is_open = False
