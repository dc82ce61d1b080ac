"""The module `multiprocessing.shared_memory` under drover's name: blocks of memory that have names."""

from __future__ import annotations

import sys
from multiprocessing import shared_memory

sys.modules[__name__] = shared_memory
