#!/usr/bin/env python3
"""Prints the release notes of a version: its section of CHANGELOG.md.

Refuses a version that CMakeLists.txt does not name, and a section that is missing, empty or without a date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from repo import ROOT, Finding, read

CHANGELOG = "CHANGELOG.md"
VERSION_FILE = "CMakeLists.txt"
_VERSION = re.compile(r"project\(drover VERSION ([0-9.]+)")
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\S+))?", re.MULTILINE)


def version_of(root: Path) -> str | None:
    """The version of the tree, or None if CMakeLists.txt has none."""
    match = _VERSION.search(read(root, VERSION_FILE))
    return match[1] if match else None


def notes_of(changelog: str, version: str) -> str | Finding:
    """The text below the heading of a version, or a finding if it is not ready."""
    headings = list(_HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] != version:
            continue
        line = changelog.count("\n", 0, heading.start()) + 1
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", heading["date"] or ""):
            what = f"version {version} has no date but '{heading['date'] or ''}'"
            return Finding(CHANGELOG, line, what, "write the day of the release there, as YYYY-MM-DD")
        body = changelog[changelog.index("\n", heading.end()) : following.start() if following else None].strip()
        return body or Finding(CHANGELOG, line, f"version {version} has no notes", "describe what users notice")
    return Finding(CHANGELOG, 1, f"has no section for version {version}", f"add `## [{version}] - YYYY-MM-DD`")


def main(arguments: list[str] | None = None) -> int:
    """Print the notes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag", help="tag or version to release, e.g. v0.1.0")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to read (default: this one)")
    options = parser.parse_args(arguments)
    version = options.tag.removeprefix("v")
    ours = version_of(options.root)
    if ours != version:
        what = f"the tree has version {ours}, and the tag says {version}"
        print(Finding(VERSION_FILE, 1, what, "set the version in project(), or correct the tag"), file=sys.stderr)
        return 1
    notes = notes_of(read(options.root, CHANGELOG) + "\n", version)
    print(notes, file=sys.stderr if isinstance(notes, Finding) else sys.stdout)
    return 1 if isinstance(notes, Finding) else 0


if __name__ == "__main__":
    sys.exit(main())
