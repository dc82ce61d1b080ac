"""The module `multiprocessing.managers` under drover's name: objects that live in a server process."""

from __future__ import annotations

import sys
from multiprocessing import managers
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.managers import *  # noqa: F403 (what this module is replaced by)

sys.modules[__name__] = managers
