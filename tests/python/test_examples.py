"""The examples: each does what its first line says, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run

FOLDER = Path(__file__).parents[2] / "examples" / "python"
SUMS = "[499999500000, 500000500000, 500001500000, 500002500000]"
SQUARES = "[1.0, 2.0, 5.0, 10.0]"
# What each prints, and the library without which it cannot run.
EXPECTED = {
    "fill_shared_rows": ("1000000.0 1000000.0", "torch"),
    "hand_over_tensors": ("torch.Size([1000, 1000]) 2000000.0", "torch"),
    "one_process_for_the_gpu": (SQUARES, "torch"),
    "pool_map": ("240 arrays summed by 4 workers, 1 killed and replaced: the result is right", "numpy"),
    "square_on_gpus": (SQUARES, "torch"),
    "sum_on_gpus": (SUMS, "numpy"),
    "sum_through_a_queue": (SUMS, "numpy"),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example_prints_what_it_should(name: str) -> None:
    """None of them guards its main module."""
    printed, library = EXPECTED[name]
    pytest.importorskip(library)
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert "__main__" not in source
    # The warning of a worker that was killed is the only other line.
    assert [line for line in run(source) if " is replaced: " not in line] == [printed]


def test_every_example_is_run() -> None:
    """None is left out above."""
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXPECTED)
