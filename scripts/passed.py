"""Remembers which content passed its tests, so that unchanged programs are not run again."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path


def _machine() -> str:
    """Everything besides its files that a test may depend on: kernel, processors, GPUs, settings of drover."""
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia*"))
    settings = sorted(
        f"{name}={value}" for name, value in os.environ.items() if name.startswith(("DROVER_", "FAKE_"))
    )
    return repr((platform.release(), os.cpu_count(), gpus, [text for text in settings if "_REPORT=" not in text]))


def content_of(files: Iterable[Path], *words: str) -> str:
    """Hash of the names and bytes of `files`, of `words`, and of the machine. Files may be missing."""
    digest = hashlib.sha256(repr((_machine(), words)).encode())
    for file in sorted(files):
        digest.update(f"\0{file}\0".encode())
        digest.update(file.read_bytes() if file.is_file() else b"missing")
    return digest.hexdigest()


class Passed:
    """The content with which each name last passed, in one small file each."""

    def __init__(self, folder: Path, is_forgetful: bool = False) -> None:
        """Store the content in `folder`. If forgetful, `has` is always false, and passes are still remembered."""
        self._folder = folder
        self._is_forgetful = is_forgetful

    def has(self, name: str, content: str) -> bool:
        """Whether `name` passed with this content."""
        file = self._folder / name
        return not self._is_forgetful and file.is_file() and file.read_text(encoding="utf-8") == content

    def remember(self, name: str, content: str) -> None:
        """Note that `name` has passed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(content, encoding="utf-8")

    def forget(self, name: str) -> None:
        """Drop the content of `name`, before a run that may fail or be killed."""
        (self._folder / name).unlink(missing_ok=True)
