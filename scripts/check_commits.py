#!/usr/bin/env python3
"""Checks the messages of the commits since the base; without a base it checks nothing.

With --message it checks one message before it is committed, as the hook `commit-msg` does.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from change import base_of
from repo import ROOT, Finding, report

MOST_LETTERS = 72
# Imperatives that look like another form of a verb.
IMPERATIVES = frozenset(
    "alias bias bring embed exceed feed focus need ping proceed ring seed shed speed string succeed swing".split()  # noqa: SIM905
)
# The first words of subjects that describe a state or a thing.
NO_VERBS = frozenset(
    "a an the this that what when where why how no not nothing one some all every more each".split()  # noqa: SIM905
)
HISTORY_STARTS_WITH = "scripts/check_commits.py"  # commits from before this gate are not judged


def has_imperative(word: str) -> bool:
    """Whether the first word of a subject may be an imperative: it is not `Added`, `Adds`, `Adding` or `The`."""
    verb = word.lower().rstrip(",:")
    if verb in IMPERATIVES:
        return True
    is_other_form = verb.endswith(("ed", "ing")) or (verb.endswith("s") and not verb.endswith("ss"))
    return verb not in NO_VERBS and not is_other_form


def problems(message: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a message, each with its remedy."""
    subject, *rest = message.splitlines() or [""]
    words = subject.split()
    if not words:
        yield "the message has no subject", "say in one line what the commit does"
        return
    if subject.startswith(("fixup!", "squash!", "amend!")):
        yield "the commit is to be squashed", "run `git rebase -i --autosquash`"
        return
    if len(subject) > MOST_LETTERS:
        yield f"the subject has {len(subject)} letters, and {MOST_LETTERS} are the most", "move detail to the body"
    if not words[0][0].isupper() or not has_imperative(words[0]):
        yield f"the subject begins with '{words[0]}'", "begin with an imperative and a capital: Add, Fix, Let, Move"
    if subject.endswith("."):
        yield "the subject ends with a full stop", "leave it out"
    if rest and rest[0]:
        yield "the second line is not blank", "put a blank line between subject and body"


def findings_of(place: str, message: str) -> Iterator[Finding]:
    """The same, at a place: a commit or a file."""
    for what, remedy in problems(message):
        yield Finding(place, 1, what, remedy)


def git(root: Path, *arguments: str) -> str:
    """What git prints; nothing if it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def check_since(root: Path, base: str) -> Iterator[Finding]:
    """The commits since the base, merges aside."""
    adopted = git(root, "log", "--diff-filter=A", "--format=%H", "--", HISTORY_STARTS_WITH).split()
    older = [f"^{parent}" for commit in adopted for parent in git(root, "rev-parse", f"{commit}^@").split()]
    listed = git(root, "log", "--no-merges", "-z", "--format=%h%n%B", "HEAD", f"^{base}", *older)
    for entry in filter(None, listed.split("\0")):
        commit, _, message = entry.partition("\n")
        yield from findings_of(f"commit {commit}", message)


def main(arguments: list[str] | None = None) -> int:
    """Check and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check (default: this one)")
    parser.add_argument("--base", default="", help="commits after this one; empty: after leaving the main branch")
    parser.add_argument("--message", type=Path, metavar="FILE", help="check the message in this file instead")
    options = parser.parse_args(arguments)
    if options.message:
        text = options.message.read_text(encoding="utf-8")
        message = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
        if message.startswith(("Merge ", "fixup!", "squash!", "amend!")):
            return 0
        return report("check_commits", findings_of(str(options.message), message))
    base = base_of(options.root, options.base)
    if base is None:
        print("check_commits: no base is known: nothing to check")
        return 0
    return report("check_commits", check_since(options.root, base))


if __name__ == "__main__":
    sys.exit(main())
