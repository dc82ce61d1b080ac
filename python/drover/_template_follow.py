"""A template that begins early: imports what the program imports, at idle priority, until the program needs it."""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from drover import _core
from drover._fork_checks import find_dirt

__all__ = ["follow"]

_STACK_BYTES = 64 << 20  # as the main thread has, and more: imports nest deeply
_LOOK_S = 0.1
_WINDOW_S = 0.3
_TIME_TO_END_S = 5.0


class _Importer:
    """A thread of idle priority that imports modules.

    The priority is that of one thread, since a process cannot leave idle priority without a privilege, and children
    that the main thread forks have the main thread's.
    """

    def __init__(self) -> None:
        self.is_sound = True  # False once an import failed, or left something that a fork would lose
        self._names: queue.SimpleQueue[tuple[list[str], list[str]] | None] = queue.SimpleQueue()
        threading.stack_size(_STACK_BYTES)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        threading.stack_size(0)
        self._tid = self._thread.native_id or 0

    def add(self, settings: dict[str, Any]) -> None:
        """Import these modules, too."""
        self._names.put((settings["modules"], settings["path"]))

    def finish(self) -> bool:
        """Wait until all is imported and the thread has ended; False if it is starved by other processes."""
        self._names.put(None)
        is_raised = self._raise_priority()
        looks = [self._spent()]
        if not is_raised and _is_starved((0.0, 0.0), looks[0], much=3.0):
            return False
        while self._thread.is_alive():
            self._thread.join(_LOOK_S)
            looks.append(self._spent())
            if not is_raised and len(looks) > _WINDOW_S / _LOOK_S and _is_starved(looks.pop(0), looks[-1]):
                return False
        end = time.monotonic() + _TIME_TO_END_S
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end:
            time.sleep(0.001)  # the kernel removes the thread shortly after
        return True

    def _raise_priority(self) -> bool:
        try:
            os.sched_setscheduler(self._tid, os.SCHED_OTHER, os.sched_param(0))
        except OSError:
            return False
        return True

    def _spent(self) -> tuple[float, float]:
        """Return the seconds for which the thread ran and for which it waited for a core."""
        try:
            numbers = Path(f"/proc/self/task/{self._tid}/schedstat").read_text(encoding="ascii").split()
        except OSError:
            return 0.0, 0.0
        return int(numbers[0]) / 1e9, int(numbers[1]) / 1e9

    def _run(self) -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while (work := self._names.get()) is not None:
            names, sys.path[:] = work
            for name in names:
                if self.is_sound:
                    self._import(name)

    def _import(self, name: str) -> None:
        try:
            importlib.import_module(name)
        except BaseException:
            self.is_sound = False
        else:
            self.is_sound = find_dirt(threads=2) is None


def _is_starved(before: tuple[float, float], after: tuple[float, float], much: float = 1.0) -> bool:
    """Return whether it waited for a core much longer than it ran."""
    ran, waited = after[0] - before[0], after[1] - before[1]
    return waited > much * ran


def follow(server: _core.TemplateServer, settings: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Import what the program tells until it needs the template; return its settings, and if this process will do.

    Ends the process if the program does not need it for a while.
    """
    own_path = sys.path[:]
    idle_s = settings["idle_s"]
    importer = _Importer()
    importer.add(settings)
    while "idle_s" in settings:
        word = server.await_word(idle_s)
        if word is None:
            os._exit(0)
        settings = json.loads(word)
        if "idle_s" in settings:
            importer.add(settings)
    is_good = importer.finish() and importer.is_sound
    sys.path[:] = own_path
    return settings, is_good
