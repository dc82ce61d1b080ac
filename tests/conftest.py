"""For every Python test: the signal handlers of a terminal, the package of the build, the order of parallel runs."""

import os
import signal
import sys
from pathlib import Path

import pytest

# A background job of a shell ignores Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
# The package that `make build` builds, then the modules that `make bundle` copies for machines without a network.
FOLDERS = [str(ROOT / os.environ.get("DROVER_BUILD_DIR", "build/dev") / "python"), str(ROOT / ".deps" / "python")]

sys.path[:0] = FOLDERS[:1]
sys.path += FOLDERS[1:]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDERS[0], os.environ.get("PYTHONPATH"), FOLDERS[1]]))

# Files that take longest. A parallel run starts with them, so that no worker ends long after the others.
LONG = (
    "test_joblib",
    "test_snippets",
    "test_cpython_multiprocessing",
    "test_torch_promises",
    "test_send_modes",
    "test_values",
    "test_torch_spawn",
    "test_torch_loader",
    "test_examples",
    "test_survival",
    "test_sessions",
    "test_kills",
    "test_docstrings",
    "test_cpython_futures",
    "test_types",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of long files first, in a process of a parallel run only."""
    if hasattr(config, "workerinput"):
        ranks = {name: rank for rank, name in enumerate(LONG)}
        items.sort(key=lambda item: ranks.get(item.path.stem, len(LONG)))
