"""Random kills of workers and processes: correct results or documented errors, no hang, nothing left behind.

DROVER_PYTHON_KILLS is the number of kills, by default 60; DROVER_PYTHON_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from programs import run

KILLS = int(os.environ.get("DROVER_PYTHON_KILLS", "60"))
SEED = int(os.environ.get("DROVER_PYTHON_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
WHAT = ("map", "imap_unordered", "executor", "queue", "tensors")
AT_ONCE = 50  # kills per program, to stay within its time limit

PROGRAM = Path(__file__).with_name("kills.py").read_text(encoding="utf-8")


def names_in_shared_memory() -> set[str]:
    """Return drover's files in /dev/shm; there should never be any."""
    return {path.name for path in Path("/dev", "shm").iterdir() if "drover" in path.name}


@pytest.mark.parametrize("what", WHAT)
def test_kills_at_random(what: str) -> None:
    """The program checks every result; processes that it leaves behind are found by their environment."""
    if what == "tensors":
        pytest.importorskip("torch")
    before = names_in_shared_memory()
    left = -(-KILLS // len(WHAT))
    for number in range(-(-left // AT_ONCE)):
        count = min(AT_ONCE, left - number * AT_ONCE)
        print(f"{what}: {count} kills with DROVER_PYTHON_SEED={SEED}, number {number}")
        lines = run(PROGRAM, what, str(count), str(SEED + number))
        summary = [line for line in lines if line.startswith(f"{what}: ")]
        print(*summary, sep="\n")
        assert re.match(rf"{what}: {count} killed; .*'right': [1-9]", summary[-1])
        assert what in ("queue", "tensors") or re.search(r"'restarts': [1-9]", summary[-1])
    assert names_in_shared_memory() == before
