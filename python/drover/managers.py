"""The module `multiprocessing.managers` under drover's name: objects that live in a server process."""

from __future__ import annotations

import sys
from multiprocessing import managers

sys.modules[__name__] = managers
