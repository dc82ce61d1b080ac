"""The module `multiprocessing.dummy` under drover's name: threads instead of processes."""

from __future__ import annotations

import sys
from multiprocessing import dummy

sys.modules[__name__] = dummy
