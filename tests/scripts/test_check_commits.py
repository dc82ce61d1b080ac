"""scripts/check_commits.py: which messages it accepts, and which commits it checks."""

from __future__ import annotations

import check_commits
import pytest
from git_history import commit, git
from small_tree import Tree


@pytest.mark.parametrize(
    "message",
    [
        "Add a gate",
        "Add a gate\n\nBecause nobody reads long subjects.\n",
        "Process fewer files",
        "Seed the fuzzers",
        'Revert "Add a gate"\n\nThis reverts commit 1234567.\n',
        "Keep <filesystem> out of the public headers",
        "F" + "x" * 71,
    ],
)
def test_imperative_of_at_most_72_letters_passes(message: str) -> None:
    """With a body or without one."""
    assert list(check_commits.problems(message)) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "the message has no subject"),
        ("F" + "x" * 72, "the subject has 73 letters, and 72 are the most"),
        ("Added a gate", "the subject begins with 'Added'"),
        ("Adds a gate", "the subject begins with 'Adds'"),
        ("Adding a gate", "the subject begins with 'Adding'"),
        ("The gate is added", "the subject begins with 'The'"),
        ("Nothing breaks into graphs", "the subject begins with 'Nothing'"),
        ("add a gate", "the subject begins with 'add'"),
        ("Add a gate.", "the subject ends with a full stop"),
        ("Add a gate\nfor subjects", "the second line is not blank"),
        ("fixup! Add a gate", "the commit is to be squashed"),
    ],
)
def test_other_message_is_refused(message: str, problem: str) -> None:
    """Each rule, broken once."""
    assert [what for what, _ in check_commits.problems(message)] == [problem]


def test_only_commits_since_the_base_are_checked(tree: Tree) -> None:
    """The main branch may contain anything, and so may merges."""
    git(tree, "checkout", "--quiet", "-b", "main")
    commit(tree, "one", "old sentences are left alone.")
    git(tree, "checkout", "--quiet", "-b", "work")
    wrong = commit(tree, "two", "Adds the second file")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "three", "another old sentence")
    git(tree, "checkout", "--quiet", "work")
    git(tree, "merge", "--quiet", "-m", "merge of main", "main")
    status, text = tree.run("check_commits.py")
    assert status == 1
    assert text.startswith(f"commit {wrong[:7]}")
    assert ":1: the subject begins with 'Adds': begin with an imperative" in text
    assert text.endswith("check_commits: 1 finding\n")
    assert tree.run("check_commits.py", "--base", "HEAD") == (0, "check_commits: ok\n")


def test_without_a_base_nothing_is_checked(tree: Tree) -> None:
    """The first commit of a tree, and a run that compares with nothing."""
    commit(tree, "one", "initial import.")
    assert tree.run("check_commits.py") == (0, "check_commits: no base is known: nothing to check\n")
    commit(tree, "two", "second import.")
    assert tree.run("check_commits.py", "--base", "everything")[0] == 0


def test_commits_from_before_the_gate_are_not_checked(tree: Tree) -> None:
    """However far back the base lies."""
    first = commit(tree, "one", "initial import.")
    commit(tree, "two", "a sentence from before the gate")
    commit(tree, check_commits.HISTORY_STARTS_WITH, "Add the gate")
    assert tree.run("check_commits.py", "--base", first)[0] == 0
    commit(tree, "three", "a sentence from after it")
    status, text = tree.run("check_commits.py", "--base", first)
    assert (status, text.count("\n")) == (1, 2)


def test_message_is_checked_before_it_is_committed(tree: Tree) -> None:
    """The hook gives its file, in which git has put comments."""
    tree.write("message", "Add a gate\n# Please enter the commit message\n\nWhy.\n")
    path = str(tree.root / "message")
    assert tree.run("check_commits.py", "--message", path) == (0, "check_commits: ok\n")
    tree.write("message", "fixup! Add a gate\n")
    assert tree.run("check_commits.py", "--message", path)[0] == 0
    tree.write("message", "added a gate\n")
    status, text = tree.run("check_commits.py", "--message", path)
    assert status == 1
    assert f"{path}:1: the subject begins with 'added'" in text
