"""What a step of scripts/steps.py tells about itself: tests run, a remark, and what failed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "DROVER_STEP_REPORT"


@dataclass
class StepReport:
    """The numbers of a step's row, and the output of what failed, to be shown last."""

    tests: int = 0
    note: str = ""
    failure: str = ""

    def save(self) -> None:
        """Write it where the caller wants it; do nothing if none asked."""
        if path := os.environ.get(VARIABLE):
            Path(path).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def load(path: Path) -> StepReport:
        """Read one; an empty one if the step wrote none."""
        if not path.is_file():
            return StepReport()
        return StepReport(**json.loads(path.read_text(encoding="utf-8")))
