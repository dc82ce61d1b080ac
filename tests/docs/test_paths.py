"""Paths of the tree that the pages name exist. `make lint` checks README and ARCHITECTURE; this checks the others."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from check_docs import FOLDERS, is_there  # noqa: E402
from docs_facts import brace_expansions  # noqa: E402
from markdown_text import code_spans  # noqa: E402


def test_pages_name_paths_that_exist() -> None:
    """A code span that begins with a directory of the tree is a path; patterns such as `src/<part>` are not."""
    wrong = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for line, span in code_spans(page.read_text(encoding="utf-8")):
            path = span.split(" ")[0].partition("::")[0].rstrip("/")
            if "/" not in path or path.split("/")[0] not in FOLDERS or any(sign in path for sign in "<>…()"):
                continue
            missing = [one for one in brace_expansions(path) if not is_there(ROOT, one)]
            wrong += [f"{page.relative_to(ROOT)}:{line}: `{one}` does not exist" for one in missing]
    assert not wrong, "\n".join(wrong)
