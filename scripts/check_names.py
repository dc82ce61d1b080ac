#!/usr/bin/env python3
"""Checks that no C++ type is defined twice under one name, which breaks the one-definition rule without a message.

Types in unnamed namespaces, members of types and specialisations do not count. A file may define a type in two
branches of the preprocessor.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from cpp_scopes import UNNAMED, CppText
from repo import CPP_FILES, ROOT, Finding, files_of, read, report

FOLDERS = ("include/", "src/")


def definitions(root: Path) -> dict[str, dict[str, int]]:
    """For each qualified name the files that define a type of that name, with the line."""
    found: dict[str, dict[str, int]] = {}
    for name in files_of(root):
        if name.startswith(FOLDERS) and Path(name).suffix in CPP_FILES:
            for each in CppText(read(root, name)).types:
                if each.is_at_namespace_scope and not each.is_specialisation and UNNAMED not in each.name:
                    found.setdefault(each.name, {}).setdefault(name, each.line)
    return found


def check(root: Path) -> Iterator[Finding]:
    """All names that are defined more than once."""
    for name, places in definitions(root).items():
        (first, first_line), *others = places.items()
        for path, line in others:
            what = f"{name} is defined in {first}:{first_line} too"
            yield Finding(path, line, what, "rename one of the two, or move it to the namespace of its part")


def main(arguments: list[str] | None = None) -> int:
    """Check the tree and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check (default: this one)")
    options = parser.parse_args(arguments)
    return report("check_names", check(options.root))


if __name__ == "__main__":
    sys.exit(main())
