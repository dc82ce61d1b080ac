"""The module `multiprocessing.pool` under drover's name, with drover's pool."""

from __future__ import annotations

from multiprocessing.pool import MaybeEncodingError, RemoteTraceback, ThreadPool

from drover._pool import CLOSE, RUN, TERMINATE, Pool
from drover._results import AsyncResult, IMapIterator, MapResult
from drover._tasks import TaskCalls

ApplyResult = AsyncResult

__all__ = [
    "CLOSE",
    "RUN",
    "TERMINATE",
    "ApplyResult",
    "AsyncResult",
    "IMapIterator",
    "MapResult",
    "MaybeEncodingError",
    "Pool",
    "RemoteTraceback",
    "TaskCalls",
    "ThreadPool",
]
