"""The module `multiprocessing.connection` under drover's name: pipes, sockets, and waiting for several of them."""

from __future__ import annotations

import sys
from multiprocessing import connection

sys.modules[__name__] = connection
