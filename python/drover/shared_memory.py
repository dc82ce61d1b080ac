"""The module `multiprocessing.shared_memory` under drover's name: named blocks of memory."""

from __future__ import annotations

import sys
from multiprocessing import shared_memory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.shared_memory import *  # noqa: F403 (what this module is replaced by)

sys.modules[__name__] = shared_memory
