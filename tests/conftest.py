"""For every Python test: signals as a terminal has them, and the package of the build for it and its children."""

import os
import signal
import sys
from pathlib import Path

# Who is started in the background of a shell ignores Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
# The package as `make build` leaves it, and behind it what `make bundle` carries to machines without a network.
FOLDERS = [str(ROOT / os.environ.get("DROVER_BUILD_DIR", "build/dev") / "python"), str(ROOT / ".deps" / "python")]

sys.path[:0] = FOLDERS[:1]
sys.path += FOLDERS[1:]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDERS[0], os.environ.get("PYTHONPATH"), FOLDERS[1]]))
