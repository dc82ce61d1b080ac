"""The module `multiprocessing.shared_memory` under drover's name: named blocks of memory."""

from __future__ import annotations

import sys
from multiprocessing import shared_memory

sys.modules[__name__] = shared_memory
