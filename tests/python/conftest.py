"""The package must be built before its tests."""

import os
from pathlib import Path

import pytest

PACKAGE = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0], "drover")

if not any(PACKAGE.glob("_core*.so")):
    pytest.exit(
        f"{PACKAGE} is not built: run `make build`, or set DROVER_BUILD_DIR to a build directory", returncode=4
    )
