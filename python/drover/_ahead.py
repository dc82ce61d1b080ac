"""What may be started in advance: for how long it waits for its first use, and on how many cores."""

from __future__ import annotations

import contextlib
import functools
import math
import os

from drover._errors import InvalidArgument

__all__ = ["cores", "idle_seconds"]

_VARIABLE = "DROVER_START_AHEAD"
_IDLE_S = 60.0
_LONGEST_S = 86400.0


def idle_seconds() -> float:
    """Return how long a process that was started in advance waits for its first use; 0 if none may be started."""
    value = os.environ.get(_VARIABLE, "")
    with contextlib.suppress(ValueError):
        seconds = float(value or _IDLE_S)
        if 0 <= seconds <= _LONGEST_S:
            return seconds
    raise InvalidArgument(
        f"{_VARIABLE} is {value!r}, which is not a number of seconds from 0 to {_LONGEST_S:.0f}",
        "unset it, or set it to 0 to start nothing in advance",
    )


def cores() -> float:
    """Return how many cores this process may use, by affinity and by the quota of its container."""
    return min(float(len(os.sched_getaffinity(0))), _quota())


@functools.cache
def _quota() -> float:
    """Return the quota in cores; infinity if there is none."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = _read("/sys/fs/cgroup/cpu.max").split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
