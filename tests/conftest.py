"""For every Python test: the signal handlers of a terminal, and the package of the build."""

import os
import signal
import sys
from pathlib import Path

# A background job of a shell ignores Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
# The package that `make build` builds, then the modules that `make bundle` copies for machines without a network.
FOLDERS = [str(ROOT / os.environ.get("DROVER_BUILD_DIR", "build/dev") / "python"), str(ROOT / ".deps" / "python")]

sys.path[:0] = FOLDERS[:1]
sys.path += FOLDERS[1:]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDERS[0], os.environ.get("PYTHONPATH"), FOLDERS[1]]))
