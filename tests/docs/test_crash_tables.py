"""Every row of the crash tables names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "crash_tables.md"
_ROW = re.compile(r"^\|.*\|([^|]*)\|$")


def test_rows_name_tests_that_exist() -> None:
    """The last cell has the names, with or without their suite; a suite alone stands for all of its tests."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.[ch]pp")))
    known = set(re.findall(r"\w+", sources))
    wrong = []
    count = 0
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        match = _ROW.match(line)
        for name in re.findall(r"`([\w.]+)`", match[1]) if match else ():
            count += 1
            wrong += [
                f"{PAGE.name}:{number}: no test is named {word}" for word in name.split(".") if word not in known
            ]
    assert count > 100
    assert not wrong, "\n".join(wrong)
