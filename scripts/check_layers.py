#!/usr/bin/env python3
"""Checks includes against the layers: a part includes only parts on lines below its own, and a room likewise.

A room is a directory src/<part>/<room>. Files directly in src/<part>, and public headers, belong to no room: they may
include every room of their part, and every room may include them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repo import CPP_FILES, ROOT, Finding, files_of, includes_of, read, report
from system_headers import is_system_header

Lines = tuple[tuple[str, ...], ...]

# Top to bottom. Parts on one line do not include each other.
LAYERS: Lines = (
    ("cli", "python"),
    ("observe",),
    ("pool",),
    ("tensor",),
    ("session",),
    ("process", "ipc", "device"),
    ("base",),
)
# The rooms of a part, likewise. In a part that is not listed, directories are free.
ROOMS: dict[str, Lines] = {
    "ipc": (("registry",), ("queue",), ("ledger", "sync", "timeline"), ("wake",), ("object",)),
    "pool": (("run",), ("watch", "plan", "values")),
    "process": (("template",), ("spawn",), ("inspect",)),
    "session": (("worker", "client"), ("keeper",), ("wire",)),
    "tensor": (("exchange",), ("memory", "layout")),
}
UMBRELLA = "include/drover/drover.hpp"
VENDOR_HEADERS = frozenset({"cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cudaTypedefs.h", "nvml.h", "nvrtc.h"})
COMPILE_TIMEOUT_S = 120


def level_of(lines: Lines, name: str) -> int | None:
    """The line on which a part or a room is, counted from the top, or None if it is on none."""
    return next((level for level, line in enumerate(lines) if name in line), None)


def part_of(name: str) -> str | None:
    """The part of a file; None for files outside of all parts, such as tests and the umbrella."""
    pieces = name.split("/")
    if pieces[:2] == ["include", "drover"] and len(pieces) > 3:
        return pieces[2]
    if pieces[0] == "src" and len(pieces) > 2:
        return pieces[1]
    return pieces[0] if pieces[0] in {"cli", "python"} else None


def room_of(name: str) -> str | None:
    """The room of a private file; None for files directly in the directory of their part, and for public headers."""
    pieces = name.split("/")
    return pieces[2] if pieces[0] == "src" and len(pieces) > 3 else None


def resolve(root: Path, includer: str, target: str) -> str | None:
    """The file of the project that an include names, relative to the root; None for other headers."""
    for base in (Path(includer).parent, Path("include"), Path("src")):
        path = Path(os.path.normpath(base / target))
        if ".." not in path.parts and (root / path).is_file():
            return path.as_posix()
    # A header that does not exist still belongs to the part in its path.
    return f"include/{target}" if target.startswith("drover/") else None


def check_foreign(name: str, line: int, target: str) -> Iterator[Finding]:
    """Headers from outside of the project that a file may not include."""
    if Path(target).name in VENDOR_HEADERS and not name.startswith("tests/"):
        yield Finding(
            name, line, f"<{target}> is included", "declare what is needed from the driver and load it by dlopen"
        )
    elif is_system_header(target):
        return
    elif name.startswith("include/"):
        yield Finding(
            name,
            line,
            f"a public header includes <{target}>",
            "public headers use the standard library and POSIX alone; move it to src/",
        )
    elif part_of(name) == "base" and not target.startswith("fmt/"):
        yield Finding(
            name,
            line,
            f"base includes <{target}>",
            "base uses the standard library, POSIX and fmt alone; move the code to the part that needs the library",
        )


def relation_of(lines: Lines, ours: str, theirs: str) -> str | None:
    """Where `theirs` is if `ours` may not include it; None if it may, or if one of the two is on no line."""
    our_level, their_level = level_of(lines, ours), level_of(lines, theirs)
    if our_level is None or their_level is None or their_level > our_level:
        return None
    return "on the same line" if their_level == our_level else "above it"


def check_order(name: str, line: int, target: str) -> Iterator[Finding]:
    """An include respects the order of parts, and within a part that of rooms."""
    kind, lines, ours, theirs = "part", LAYERS, part_of(name), part_of(target)
    if ours is not None and ours == theirs:
        kind, lines, ours, theirs = "room", ROOMS.get(ours, ()), room_of(name), room_of(target)
    if ours is None or theirs is None or ours == theirs:
        return
    if relation := relation_of(lines, ours, theirs):
        what = f"{kind} {ours} includes {target}, and {kind} {theirs} is {relation}"
        remedy = f"a {kind} includes only {kind}s on lines below its own; move what is shared down"
        yield Finding(name, line, what, remedy)


def check_project(name: str, line: int, target: str) -> Iterator[Finding]:
    """What one file of the project may include of another."""
    if target == UMBRELLA and name.startswith(("include/", "src/")):
        yield Finding(name, line, "the umbrella drover/drover.hpp is included", "include the headers that are needed")
    if name.startswith("include/") and not target.startswith("include/"):
        yield Finding(
            name, line, f"a public header includes the private {target}", "move what it needs to include/drover"
        )
    yield from check_order(name, line, target)


def check_place(name: str) -> Iterator[Finding]:
    """A file lies in a part that has a layer, and in a room that has a line."""
    part, room = part_of(name), room_of(name)
    if part is None:
        return
    if level_of(LAYERS, part) is None:
        yield Finding(name, 1, f"part {part} has no layer", "put it on a line of LAYERS in scripts/check_layers.py")
    elif room is not None and ROOMS.get(part) and level_of(ROOMS[part], room) is None:
        what = f"room {room} of part {part} has no line"
        yield Finding(name, 1, what, "put it on a line of ROOMS in scripts/check_layers.py")


def check_file(root: Path, name: str) -> Iterator[Finding]:
    """All findings of one file."""
    yield from check_place(name)
    for line, target, is_quoted in includes_of(read(root, name)):
        if not is_quoted and is_system_header(target):
            continue
        inside = resolve(root, name, target)
        yield from check_project(name, line, inside) if inside else check_foreign(name, line, target)


def find_compiler() -> str | None:
    """The C++ compiler: $CXX, or else one of the usual names."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))), None)


def compile_alone(root: Path, compiler: str, name: str) -> Finding | None:
    """Compile a program that includes one public header and nothing more."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Iinclude", "-x", "c++", "-"]
    program = f'#include "{name.removeprefix("include/")}"\n'
    try:
        done = subprocess.run(
            command, cwd=root, input=program, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding(name, 1, f"{compiler} did not finish within {COMPILE_TIMEOUT_S} s", "simplify the header")
    if done.returncode == 0:
        return None
    first = next((text for text in done.stderr.splitlines() if "error" in text), done.stderr.strip())
    return Finding(name, 1, f"does not compile by itself ({first.strip()})", "include what it uses")


def compile_headers(root: Path, names: list[str]) -> list[Finding]:
    """Compile each public header by itself, several at a time."""
    compiler = find_compiler()
    if compiler is None:
        print("check_layers: found no C++ compiler and did not compile headers: install g++, or set CXX")
        return []
    headers = [name for name in names if name.startswith("include/")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda name: compile_alone(root, compiler, name), headers)
        return [finding for finding in done if finding is not None]


def main(arguments: list[str] | None = None) -> int:
    """Check the tree and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check (default: this one)")
    parser.add_argument("--compile", action="store_true", help="also compile each public header by itself")
    options = parser.parse_args(arguments)
    names = [name for name in files_of(options.root) if Path(name).suffix in CPP_FILES]
    findings = [finding for name in names for finding in check_file(options.root, name)]
    if options.compile:
        findings += compile_headers(options.root, names)
    return report("check_layers", findings)


if __name__ == "__main__":
    sys.exit(main())
