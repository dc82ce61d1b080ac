"""One line of progress instead of hundreds."""

from __future__ import annotations

import sys
import time

PAUSE_S = 10.0  # between lines that cannot be overwritten


class ProgressLine:
    """A line that is overwritten on a terminal; otherwise a new line every ten seconds."""

    def __init__(self, name: str) -> None:
        """Start the clock and print nothing."""
        self._name = name
        self._can_overwrite = sys.stdout.isatty()
        self._begin = self._printed = time.monotonic()
        self._is_open = False

    def show(self, done: str, total: str) -> None:
        """Show how much is done."""
        now = time.monotonic()
        text = f"{self._name}: {done} of {total}, {now - self._begin:.0f} s"
        if self._can_overwrite:
            print(f"\r{text}\033[K", end="", flush=True)
            self._is_open = True
        elif now - self._printed >= PAUSE_S:
            self._printed = now
            print(text, flush=True)

    def close(self) -> None:
        """End the line, so that other text can follow."""
        if self._is_open:
            print()
        self._is_open = False
