"""Fixtures of the tests of the scripts: the scripts as modules, and small trees on which checks run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_tree import SCRIPTS, Tree

sys.path.insert(0, str(SCRIPTS))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Give an empty tree."""
    return Tree(tmp_path / "tree")
