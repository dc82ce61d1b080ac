"""The files that changed since a base, which is the merge base with the main branch unless another is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

EVERYTHING = "everything"


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def base_of(root: Path, named: str = "") -> str | None:
    """The commit to compare with, or None if there is none: then everything counts as changed.

    On a branch this is the commit where it left the main branch. On the main branch it is the last pushed commit, or
    the parent of HEAD if everything is pushed. Raises SystemExit for a name that git does not know.
    """
    if named == EVERYTHING:
        return None
    if named:
        found = _git(root, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
        if found is None:
            raise SystemExit(f"change: git knows no commit '{named}': name a branch, a tag or a commit as the base")
        return found
    head = _git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    for branch in ("origin/main", "main"):
        base = _git(root, "merge-base", "HEAD", branch)
        if base and base != head:
            return base
    return _git(root, "rev-parse", "--verify", "--quiet", "HEAD^")


def changed_since(root: Path, base: str) -> set[str]:
    """Paths, relative to `root`, of files in the working tree that differ from `base` or are new."""
    differing = _git(root, "diff", "--name-only", "--relative", base) or ""
    new = _git(root, "ls-files", "--others", "--exclude-standard") or ""
    return {name for name in (differing + "\n" + new).splitlines() if name}
