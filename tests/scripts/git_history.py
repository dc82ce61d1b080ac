"""Commits in a small tree."""

from __future__ import annotations

import subprocess

from small_tree import Tree


def git(tree: Tree, *arguments: str) -> str:
    """Run git in the tree."""
    settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(tree.root), *settings, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(tree: Tree, name: str, message: str = "") -> str:
    """Commit a new file, with its name as the message unless one is given; the commit."""
    tree.write(name, f"{name}\n")
    git(tree, "add", name)
    git(tree, "commit", "--quiet", "-m", message or name)
    return git(tree, "rev-parse", "HEAD")
