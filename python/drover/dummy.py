"""The module `multiprocessing.dummy` under drover's name: threads instead of processes."""

from __future__ import annotations

import sys
from multiprocessing import dummy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.dummy import *  # noqa: F403 (what this module is replaced by)

sys.modules[__name__] = dummy
