"""`python -m drover`: runs the command-line tool, or a worker of a pool."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["main"]

_ROLE = "--drover-role="


def main() -> None:
    """Run a worker if the arguments ask for one, otherwise the command-line tool."""
    if len(sys.argv) > 1 and sys.argv[1].startswith(_ROLE):
        from drover import _core  # noqa: PLC0415 (the tool does not need it)

        sys.exit(_core.play_role(sys.argv))
    tool = str(Path(__file__).with_name("bin") / "drover")
    os.execv(tool, ["drover", *sys.argv[1:]])


if __name__ == "__main__":
    main()
