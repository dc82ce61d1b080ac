"""scripts/change.py: the base of a change, and the files that changed since."""

from __future__ import annotations

import change
import pytest
from git_history import commit, git
from small_tree import Tree


def test_first_commit_has_no_base(tree: Tree) -> None:
    """So everything counts as changed."""
    assert change.base_of(tree.root) is None
    commit(tree, "one")
    assert change.base_of(tree.root) is None


def test_main_branch_is_compared_with_the_parent_or_with_the_last_push(tree: Tree) -> None:
    """The last push is the origin's main branch."""
    git(tree, "checkout", "--quiet", "-b", "main")
    first, second = commit(tree, "one"), commit(tree, "two")
    assert change.base_of(tree.root) == first
    git(tree, "update-ref", "refs/remotes/origin/main", first)
    commit(tree, "three")
    assert change.base_of(tree.root) == first
    git(tree, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert change.base_of(tree.root) == second


def test_branch_is_compared_with_the_commit_where_it_left_the_main_branch(tree: Tree) -> None:
    """The change consists of committed, modified and new files."""
    git(tree, "checkout", "--quiet", "-b", "main")
    left = commit(tree, "one")
    git(tree, "checkout", "--quiet", "-b", "work")
    commit(tree, "two")
    tree.write("one", "changed\n")
    tree.write("three", "new\n")
    git(tree, "checkout", "--quiet", "-b", "more")
    assert change.base_of(tree.root) == left
    assert change.changed_since(tree.root, left) == {"one", "two", "three"}


def test_base_can_be_named(tree: Tree) -> None:
    """By any name that git knows."""
    first = commit(tree, "one")
    commit(tree, "two")
    assert change.base_of(tree.root, "HEAD^") == first
    assert change.base_of(tree.root, "everything") is None
    with pytest.raises(SystemExit, match="git knows no commit 'nonsense': name a branch"):
        change.base_of(tree.root, "nonsense")
