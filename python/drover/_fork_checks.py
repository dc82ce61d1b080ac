"""Checks whether a process may be forked: threads and CUDA would not survive, and descriptors would be closed."""

from __future__ import annotations

import contextlib
import os

from drover import _guard

__all__ = ["THREADS", "find_dirt", "find_gpu", "find_open", "open_files"]

THREADS = "it started"  # how the complaint about threads begins


def find_dirt(threads: int = 1) -> str | None:
    """Return why this process, which should have that many threads, must not be forked; None if it may be."""
    tasks = os.listdir("/proc/self/task")
    if len(tasks) != threads:
        return f"{THREADS} {len(tasks) - threads} threads, which a fork would lose"
    return find_gpu()


def find_gpu() -> str | None:
    """Return how this process has touched a GPU; None if it has not."""
    if _guard.is_cuda_initialised():
        return "it initialised CUDA, which does not survive a fork"
    for path in open_files().values():
        if path.startswith("/dev/nvidia"):
            return f"it opened {path}, which no child may inherit"
    return None


def open_files() -> dict[str, str]:
    """Return the path of each open descriptor."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of /proc/self/fd itself
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def find_open(before: dict[str, str]) -> str | None:
    """Return a complaint if a descriptor was opened since `before`: children close it, and its number is reused."""
    new = sorted(path for number, path in open_files().items() if before.get(number) != path)
    return f"it left {new[0]} open, which no child can keep" if new else None
