"""scripts/release_notes.py: which section it prints, and which tags it refuses."""

from __future__ import annotations

import pytest
import release_notes
from small_tree import ROOT, Tree

CHANGELOG = """# Changelog

## [0.3.0] - unreleased

Soon.

## [0.2.0] - 2026-11-20

Faster.

### Added

- A [link](docs/x.md).

## [0.1.0] - 2026-11-01

## [0.0.9] - 2026-10-01

First.
"""


def notes(tree: Tree, tag: str, version: str) -> tuple[int, str]:
    """Run the script on a tree of this version."""
    tree.write(
        "CMakeLists.txt", f"cmake_minimum_required(VERSION 3.25)\nproject(drover VERSION {version} LANGUAGES CXX)\n"
    )
    tree.write("CHANGELOG.md", CHANGELOG)
    return tree.run("release_notes.py", tag)


def test_notes_are_the_section_of_the_version(tree: Tree) -> None:
    """Without its heading and without the next section; the last section ends with the file."""
    assert notes(tree, "v0.2.0", "0.2.0") == (0, "Faster.\n\n### Added\n\n- A [link](docs/x.md).\n")
    assert notes(tree, "0.0.9", "0.0.9") == (0, "First.\n")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.3.0", "CHANGELOG.md:3: version 0.3.0 has no date but 'unreleased': write the day of the release there"),
        ("0.1.0", "CHANGELOG.md:15: version 0.1.0 has no notes: describe what users notice"),
        ("0.4.0", "CHANGELOG.md:1: has no section for version 0.4.0: add `## [0.4.0] - YYYY-MM-DD`"),
    ],
)
def test_section_that_is_not_ready_is_refused(tree: Tree, version: str, message: str) -> None:
    """Undated, empty or missing."""
    status, text = notes(tree, f"v{version}", version)
    assert status == 1
    assert text.startswith(message)


def test_tag_must_be_the_version_of_the_tree(tree: Tree) -> None:
    """A tag on the wrong commit publishes nothing."""
    status, text = notes(tree, "v0.2.0", "0.2.1")
    assert status == 1
    assert text.startswith("CMakeLists.txt:1: the tree has version 0.2.1, and the tag says 0.2.0: ")


def test_this_tree_has_a_section_for_its_version() -> None:
    """Released or not: a dated section, or one that waits for its date."""
    version = release_notes.version_of(ROOT)
    assert version is not None
    found = release_notes.notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    assert isinstance(found, str) or "has no date but 'unreleased'" in found.what
