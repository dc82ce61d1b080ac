#!/usr/bin/env python3
"""Checks the documentation against the tree: links, error codes, environment variables, glossary and paths."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import markdown_text as markdown
from docs_facts import brace_expansions, environment_variables, error_codes
from repo import ROOT, Finding, files_of, read, report

ERRC = "include/drover/base/error.hpp"
ERRORS = "docs/errors.md"
CONFIGURATION = "docs/configuration.md"
GLOSSARY = "docs/glossary.md"
PAGES_WITH_PATHS = ("ARCHITECTURE.md", "README.md")
# A code span that begins with one of these names a path of the tree.
FOLDERS = ("benchmarks", "cli", "cmake", "docs", "examples", "include", "python", "scripts", "src", "tests", ".ci")


def missing(name: str, why: str) -> Finding:
    """The finding for a required page that does not exist."""
    return Finding(name, 1, "is missing", why)


def check_link(root: Path, page: str, line: int, target: str) -> Iterator[Finding]:
    """The target of a relative link exists and has the heading of its anchor."""
    path, _, anchor = target.partition("#")
    found = (root / page).parent / path if path else root / page
    if path.startswith("/"):
        yield Finding(page, line, f"link to {target}", "write it relative to the page")
    elif root.resolve() not in [found.resolve(), *found.resolve().parents]:
        yield Finding(page, line, f"link to {target} leaves the tree", "link to the web instead")
    elif not found.exists():
        yield Finding(page, line, f"link to {target}, which does not exist", "correct the path")
    elif anchor and found.suffix == ".md" and anchor not in markdown.anchors(found.read_text(encoding="utf-8")):
        yield Finding(page, line, f"link to {target}, and no heading there makes #{anchor}", "correct the anchor")


def check_links(root: Path, names: list[str]) -> Iterator[Finding]:
    """The relative links of all pages are valid."""
    for page in (name for name in names if name.endswith(".md")):
        for line, target in markdown.links(read(root, page)):
            if not markdown.is_absolute(target):
                yield from check_link(root, page, line, target)


def check_errors(root: Path, names: list[str]) -> Iterator[Finding]:
    """Every error code has a heading."""
    if ERRC not in names:
        return
    if ERRORS not in names:
        yield missing(ERRORS, f"describe every code of {ERRC} there")
        return
    described = {heading.split()[0].rstrip(":") for _, heading in markdown.headings(read(root, ERRORS)) if heading}
    for line, code in error_codes(read(root, ERRC)):
        if code not in described:
            yield Finding(ERRC, line, f"Errc::{code} has no heading in {ERRORS}", f"add a section `{code}`")


def check_variables(root: Path, names: list[str]) -> Iterator[Finding]:
    """Every environment variable that is read is documented."""
    documented = read(root, CONFIGURATION) if CONFIGURATION in names else None
    for name, line, variable in environment_variables(root, names):
        if documented is None:
            yield missing(CONFIGURATION, f"describe {variable} there, which {name} reads")
            return
        if variable not in markdown.words(documented):
            yield Finding(name, line, f"{variable} is not in {CONFIGURATION}", "describe it there")


def check_settings(root: Path, names: list[str]) -> Iterator[Finding]:
    """Every DROVER_ setting that the page describes occurs in a file that is no page."""
    if CONFIGURATION not in names:
        return
    used = {
        word
        for name in names
        if not name.endswith(".md")
        for word in re.findall(r"\bDROVER_[A-Z0-9_]+", read(root, name))
    }
    for line, cell in markdown.first_column(read(root, CONFIGURATION)):
        for setting in re.findall(r"`(DROVER_[A-Z0-9_]+)`", cell):
            if setting not in used:
                yield Finding(CONFIGURATION, line, f"nothing reads {setting}", "delete the row, or correct its name")


def check_glossary(root: Path, names: list[str]) -> Iterator[Finding]:
    """No word is in the glossary twice."""
    if GLOSSARY not in names:
        return
    seen: dict[str, int] = {}
    for line, cell in markdown.first_column(read(root, GLOSSARY)):
        for word in (piece.strip(" `*").lower() for piece in cell.split(",")):
            if word in seen:
                yield Finding(GLOSSARY, line, f"{word} is explained on line {seen[word]} too", "keep one of the two")
            seen.setdefault(word, line)


def is_there(root: Path, path: str) -> bool:
    """Whether a path exists; a pattern with * must match something."""
    return any(root.glob(path)) if "*" in path else (root / path).exists()


def check_paths(root: Path, names: list[str]) -> Iterator[Finding]:
    """Paths in the entry pages exist. Placeholders such as `src/<part>` are ignored."""
    for page in (name for name in PAGES_WITH_PATHS if name in names):
        for line, span in markdown.code_spans(read(root, page)):
            is_path = span.split("/")[0] in FOLDERS and "/" in span
            if not is_path or any(sign in span for sign in " <>…()") or "..." in span:
                continue
            for path in brace_expansions(span.rstrip("/")):
                if not is_there(root, path):
                    yield Finding(page, line, f"`{path}` does not exist", "correct the path")


def main(arguments: list[str] | None = None) -> int:
    """Check the tree and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check (default: this one)")
    root = parser.parse_args(arguments).root
    names = files_of(root)
    checks = (check_links, check_errors, check_variables, check_settings, check_glossary, check_paths)
    return report("check_docs", [finding for check in checks for finding in check(root, names)])


if __name__ == "__main__":
    sys.exit(main())
