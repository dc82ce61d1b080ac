"""Every row of the crash tables names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "crash_tables.md"
_ROW = re.compile(r"^\|.*\|([^|]*)\|$")


def test_names_of_tests_exist() -> None:
    """The last cell of a row names tests, with or without their suite; so do long words in the text."""
    files = (path for pattern in ("*.[ch]pp", "test_*.py") for path in sorted((ROOT / "tests").rglob(pattern)))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in files)
    known = set(re.findall(r"\w+", sources))
    wrong = []
    count = 0
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        row = _ROW.match(line)
        names = re.findall(r"`([\w.]+)`", row[1]) if row else re.findall(r"`(\w+(?:_\w+){4,})`", line)
        for word in (word for name in names for word in name.split(".")):
            count += 1
            if word not in known:
                wrong.append(f"{PAGE.name}:{number}: no test is named {word}")
    assert count > 100
    assert not wrong, "\n".join(wrong)
