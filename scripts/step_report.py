"""The report of a step to scripts/steps.py: how many tests ran, a note, and the output of failures."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "DROVER_STEP_REPORT"


@dataclass
class StepReport:
    """The contents of a step's row, and the output of failures, which is shown last."""

    tests: int = 0
    note: str = ""
    failure: str = ""

    def save(self) -> None:
        """Write it to the file that the caller named; do nothing without a caller."""
        if path := os.environ.get(VARIABLE):
            Path(path).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def load(path: Path) -> StepReport:
        """Read a report; an empty one if the step wrote none."""
        if not path.is_file():
            return StepReport()
        return StepReport(**json.loads(path.read_text(encoding="utf-8")))
