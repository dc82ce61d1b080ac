"""CPython's own tests of process pools of concurrent.futures with our executor; see cpython_futures.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cpython_futures import CLASSES, NO_TESTS, advice

RUNNER = Path(__file__).with_name("cpython_futures.py")
# Ends a run that hangs; says nothing of how fast it must be.
LIMIT_S = 240


@pytest.mark.parametrize("name", CLASSES)
def test_class_passes(name: str, tmp_path: Path) -> None:
    """Every test of the class passes but for those that are left out."""
    done = subprocess.run(
        [sys.executable, str(RUNNER), name],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode == NO_TESTS:
        pytest.skip(advice())
    assert done.returncode == 0, done.stdout
    assert "\nRan " in done.stdout
    assert "\nRan 0 " not in done.stdout
