#!/usr/bin/env python3
"""Checks the include graph against the layers: a part includes only parts on lines below its own."""

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

# Top to bottom. Parts on one line do not include each other.
LAYERS = (
    ("cli", "python"),
    ("observe",),
    ("pipeline", "loader", "kernels", "store", "cluster"),
    ("pool", "service"),
    ("tensor",),
    ("session",),
    ("process", "ipc", "device"),
    ("base",),
)
LEVEL = {part: level for level, line in enumerate(LAYERS) for part in line}
UMBRELLA = "include/drover/drover.hpp"
VENDOR_HEADERS = frozenset({"cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cudaTypedefs.h", "nvml.h", "nvrtc.h"})
COMPILE_TIMEOUT_S = 120


def part_of(name: str) -> str | None:
    """The part a file belongs to; nothing for files that belong to none, such as tests and the umbrella."""
    pieces = name.split("/")
    if pieces[:2] == ["include", "drover"] and len(pieces) > 3:
        return pieces[2]
    if pieces[0] == "src" and len(pieces) > 2:
        return pieces[1]
    return pieces[0] if pieces[0] in {"cli", "python"} else None


def resolve(root: Path, includer: str, target: str) -> str | None:
    """The project file an include names, relative to the root; nothing for system and foreign headers."""
    for base in (Path(includer).parent, Path("include"), Path("src")):
        path = Path(os.path.normpath(base / target))
        if ".." not in path.parts and (root / path).is_file():
            return path.as_posix()
    # A header that is gone still belongs to the part its path names.
    return f"include/{target}" if target.startswith("drover/") else None


def check_foreign(name: str, line: int, target: str) -> Iterator[Finding]:
    """What may not come from outside the project, file by file."""
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


def check_project(name: str, line: int, target: str) -> Iterator[Finding]:
    """What one file of the project may include of another."""
    if target == UMBRELLA and name.startswith(("include/", "src/")):
        yield Finding(name, line, "the umbrella drover/drover.hpp is included", "include the headers that are needed")
    if name.startswith("include/") and not target.startswith("include/"):
        yield Finding(
            name, line, f"a public header includes the private {target}", "move what it needs to include/drover"
        )
    ours, theirs = part_of(name), part_of(target)
    if ours is None or theirs is None or ours == theirs or not {ours, theirs} <= LEVEL.keys():
        return
    if LEVEL[theirs] <= LEVEL[ours]:
        relation = "on the same line" if LEVEL[theirs] == LEVEL[ours] else "above it"
        yield Finding(
            name,
            line,
            f"part {ours} includes {target}, and part {theirs} is {relation}",
            "a part includes only parts on lines below its own; move what is shared down",
        )


def check_file(root: Path, name: str) -> Iterator[Finding]:
    """All findings of one file."""
    part = part_of(name)
    if part is not None and part not in LEVEL:
        yield Finding(name, 1, f"part {part} has no layer", "put it on a line of LAYERS in scripts/check_layers.py")
    for line, target, is_quoted in includes_of(read(root, name)):
        if not is_quoted and is_system_header(target):
            continue
        inside = resolve(root, name, target)
        yield from check_project(name, line, inside) if inside else check_foreign(name, line, target)


def find_compiler() -> str | None:
    """The C++ compiler: $CXX, else the usual names."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))), None)


def compile_alone(root: Path, compiler: str, name: str) -> Finding | None:
    """Compile a program that is one public header and nothing else."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Iinclude", "-x", "c++", "-"]
    program = f'#include "{name.removeprefix("include/")}"\n'
    try:
        done = subprocess.run(
            command, cwd=root, input=program, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding(name, 1, f"{compiler} was still at it after {COMPILE_TIMEOUT_S} s", "simplify the header")
    if done.returncode == 0:
        return None
    first = next((text for text in done.stderr.splitlines() if "error" in text), done.stderr.strip())
    return Finding(name, 1, f"does not compile by itself ({first.strip()})", "include what it uses")


def compile_headers(root: Path, names: list[str]) -> list[Finding]:
    """Compile each public header by itself, several at a time."""
    compiler = find_compiler()
    if compiler is None:
        print("check_layers: no C++ compiler was found, so that headers were not compiled by themselves")
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
