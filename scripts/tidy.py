"""Runs clang-tidy over the compile database, in parallel, except on unchanged files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from repo import files_of, includes_of

SEARCHED = ("include", "src", "tests", "benchmarks", "")


@dataclass(frozen=True)
class Unit:
    """A source and the command that compiles it."""

    source: Path
    command: str


def units_of(root: Path, build: Path) -> list[Unit]:
    """The project's own sources in the compile database, without duplicates."""
    ours = {(root / name).resolve() for name in files_of(root)}
    units: dict[Path, Unit] = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        source = Path(entry["directory"], entry["file"]).resolve()
        if source in ours:
            units.setdefault(source, Unit(source, entry.get("command") or " ".join(entry["arguments"])))
    return [units[source] for source in sorted(units)]


class Fingerprints:
    """Hashes of everything in the tree that affects the findings in a source."""

    def __init__(self, root: Path, tool_version: str) -> None:
        """Start with an empty cache. `tool_version` is hashed too, so a new clang-tidy checks everything again."""
        self._root = root
        self._salt = tool_version
        self._texts: dict[Path, bytes] = {}
        self._includes: dict[Path, list[Path]] = {}

    def of(self, unit: Unit) -> str:
        """Hash of the source, the project's headers that it reaches, its command and its settings."""
        digest = hashlib.sha256(f"{self._salt}\0{unit.command}".encode())
        for path in [*self._settings(unit.source), *sorted(self._reached(unit.source))]:
            digest.update(f"\0{path}\0".encode() + self._text(path))
        return digest.hexdigest()

    def is_reached(self, unit: Unit, changed: set[Path]) -> bool:
        """Whether one of these files is the source, a header that it reaches, or its settings."""
        return not changed.isdisjoint([*self._settings(unit.source), *self._reached(unit.source)])

    def _text(self, path: Path) -> bytes:
        if path not in self._texts:
            self._texts[path] = path.read_bytes()
        return self._texts[path]

    def _settings(self, source: Path) -> Iterator[Path]:
        for folder in source.parents:
            if (folder / ".clang-tidy").is_file():
                yield folder / ".clang-tidy"
            if folder == self._root:
                return

    def _direct(self, path: Path) -> list[Path]:
        if path not in self._includes:
            text = self._text(path).decode("utf-8", errors="replace")
            folders = [path.parent, *(self._root / folder for folder in SEARCHED)]
            candidates = (folder / target for _, target, _ in includes_of(text) for folder in folders)
            self._includes[path] = [Path(os.path.normpath(found)) for found in candidates if found.is_file()]
        return self._includes[path]

    def _reached(self, source: Path) -> set[Path]:
        reached: set[Path] = set()
        waiting = [source]
        while waiting:
            path = waiting.pop()
            if path not in reached:
                reached.add(path)
                waiting += self._direct(path)
        return reached


class Cache:
    """Remembers the fingerprint under which a source was last clean."""

    def __init__(self, folder: Path) -> None:
        """Store fingerprints in `folder`, in one small file per source."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / (name.replace("/", "+") + ".clean")

    def is_clean(self, name: str, fingerprint: str) -> bool:
        """Whether `name` was clean under this fingerprint."""
        file = self._file(name)
        return file.is_file() and file.read_text(encoding="utf-8") == fingerprint

    def remember(self, name: str, fingerprint: str) -> None:
        """Note that `name` is clean now."""
        self._file(name).write_text(fingerprint, encoding="utf-8")


def run_tidy(root: Path, build: Path, tool: str, changed: set[str] | None = None) -> tuple[bool, str]:
    """Check every source that changed since it was clean; whether all are clean, and the output.

    With `changed`, only sources that reach one of these files.
    """
    version = subprocess.run([tool, "--version"], check=True, capture_output=True, text=True).stdout
    fingerprints = Fingerprints(root.resolve(), version)
    cache = Cache(root / "build" / "lint-cache")
    units = units_of(root, build)
    if changed is not None:
        paths = {root.resolve() / name for name in changed}
        units = [unit for unit in units if fingerprints.is_reached(unit, paths)]
    keys = {unit: fingerprints.of(unit) for unit in units}
    names = {unit: unit.source.relative_to(root.resolve()).as_posix() for unit in units}
    due = [unit for unit in units if not cache.is_clean(names[unit], keys[unit])]

    def check(unit: Unit) -> str:
        command = [tool, "-p", str(build), "--quiet", str(unit.source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            cache.remember(names[unit], keys[unit])
            return ""
        return (done.stdout.strip() or done.stderr.strip()) + "\n"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(check, due) if text]
    summary = f"{len(due)} checked, {len(units) - len(due)} unchanged"
    return not complaints, "".join(complaints) + summary
