"""A short run of `make torture-mixed`: disturbed programs, one for each way in which they end."""

from __future__ import annotations

import re
from pathlib import Path

from programs import run

STORM = Path(__file__).with_name("mixed_storm.py")
SOURCE = f"import runpy, sys; sys.argv[0] = {str(STORM)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
ENDINGS = ("program", "keeper", "both", "finish")
SHORT = ("--endings", *ENDINGS, "--minutes", "0", "--longest-life", "3", "--seed", "7")
PATIENCE_S = "150"  # a machine that runs other tests, too, may need as long for a round


def test_storm_leaves_nothing_behind() -> None:
    """Results are right, each kind of work goes on, and no process outlives its program."""
    summary = run(SOURCE, *SHORT, "--limit", PATIENCE_S)[-1]
    for ending in ENDINGS:
        assert f"'ended by {ending}': 1" in summary
    assert re.search(r"(killed|stopped)': [1-9]", summary), summary


def test_storm_fails_where_a_round_takes_longer_than_the_limit() -> None:
    """No round is complete within a millisecond; the processes write their stacks and end."""
    lines = run(SOURCE, *SHORT, "--limit", "0.001", status=1)
    assert "AssertionError: no round of" in lines[-1]
