"""What the tests of the scripts share: the scripts as modules, and small trees to run checks on."""

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
