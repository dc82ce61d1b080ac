#!/usr/bin/env python3
"""Checks the names of C++ types.

No type is defined twice under one name, which breaks the one-definition rule without a message: of two inline
functions or constructors with one name, the linker keeps either, and a program then calls the wrong one. This covers
the library and everything that is linked with it, tests included. Types of private headers lie in the namespace of
their part, drover::<part>. Types in unnamed namespaces, members of types and specialisations do not count. A file may
define a type in two branches of the preprocessor.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from cpp_scopes import UNNAMED, CppText
from repo import CPP_FILES, ROOT, Finding, files_of, read, report

# The library, and the programs that are linked with it. The tests are one of them here, although each part has a
# program of its own: a helper may move to tests/support. Benchmarks are left out, because all define `Contender`.
LIBRARY = ("include/", "src/")
CHECKED = (*LIBRARY, "tests/", "cli/", "python/")
# Parts with a namespace of their own for private code. `base` is too small to need one.
PARTS = frozenset({"device", "ipc", "observe", "pool", "process", "session", "tensor"})
# For private headers of code that users see in public headers.
SHARED = "drover::detail::"


def definitions(root: Path) -> dict[str, dict[str, int]]:
    """For each qualified name the files that define a type of that name, with the line."""
    found: dict[str, dict[str, int]] = {}
    for name in files_of(root):
        if name.startswith(CHECKED) and Path(name).suffix in CPP_FILES:
            for each in CppText(read(root, name)).types:
                if each.is_at_namespace_scope and not each.is_specialisation and UNNAMED not in each.name:
                    found.setdefault(each.name, {}).setdefault(name, each.line)
    return found


def misplaced(name: str, path: str) -> str | None:
    """The namespace in which a type of a private header must lie, if it lies elsewhere."""
    pieces = path.split("/")
    if pieces[0] != "src" or pieces[1] not in PARTS or Path(path).suffix == ".cpp":
        return None
    wanted = f"drover::{pieces[1]}"
    return None if name.startswith((f"{wanted}::", SHARED)) else wanted


def _remedy(path: str) -> str:
    """What to do about a type that `path` defines again."""
    if path.startswith(LIBRARY):
        return "rename one of the two, or move it to the namespace of its part"
    return "move it to an unnamed namespace, or rename it"


def check(root: Path) -> Iterator[Finding]:
    """All names that are defined more than once, or in the wrong namespace."""
    found = definitions(root)
    for name, places in found.items():
        # A test or a tool is to blame, not the library.
        (first, first_line), *others = sorted(places.items(), key=lambda place: not place[0].startswith(LIBRARY))
        is_member = name.rpartition("::")[0] in found  # such as `class Template::State`
        for path, line in places.items():
            if not is_member and (wanted := misplaced(name, path)):
                what = f"{name} of a private header is outside of {wanted}"
                yield Finding(path, line, what, f"move it to namespace {wanted}")
        for path, line in others:
            what = f"{name} is defined in {first}:{first_line} too"
            yield Finding(path, line, what, _remedy(path))


def main(arguments: list[str] | None = None) -> int:
    """Check the tree and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check (default: this one)")
    options = parser.parse_args(arguments)
    return report("check_names", check(options.root))


if __name__ == "__main__":
    sys.exit(main())
