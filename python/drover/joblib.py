"""joblib on workers of drover: `with joblib.parallel_config(backend="drover")`.

`import drover` registers the backend as soon as joblib is imported, before or after it, and so does importing this
module; `register` does it again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import joblib
from joblib._parallel_backends import FallbackToBackend, SequentialBackend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from drover import _core, _functions
from drover._errors import NotFound
from drover._executor import Executor, Future

__all__ = ["DroverBackend", "register"]

# What Parallel tells every backend, for those that write arrays to files.
_NOT_OURS = frozenset(
    {"context", "context_id", "max_nbytes", "mmap_mode", "prefer", "require", "temp_folder", "verbose"}
)
_IDLE_LIMIT = 300.0  # seconds after which workers that nobody uses end

# The executor that the last call is done with: workers are started once for many calls.
_spare: list[tuple[Any, Executor]] = []
_lock = threading.Lock()


def register() -> None:
    """Make the backend known to joblib as "drover"."""
    register_parallel_backend("drover", DroverBackend)


def _title_of(batch: Any) -> str:
    """Give the name of what a batch of joblib calls."""
    items = getattr(batch, "items", None)
    return _functions.title_of(items[0][0] if items else batch)


def _run(batch: Callable[[], Any]) -> Any:
    """Run a batch in a worker, under the name of what it calls."""
    _core.this_worker().set_title(_title_of(batch))
    return batch()


def _is_in_worker() -> bool:
    try:
        _core.this_worker()
    except NotFound:
        return False
    return True


class DroverBackend(AutoBatchingMixin, ParallelBackendBase):
    """Runs the batches of joblib in workers of a `drover.Executor`, whose options are those of the backend.

    Workers are kept for the next call with the same options, and end when there was none for five minutes. A worker
    that dies is replaced: the call raises PeerLost, or begins the batch again with `retry`. Calls inside of tasks use
    threads, and inside of those nothing: as joblib has it.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    _executor: Executor | None = None
    _key: Any = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Give the number of workers that is meant; 1 in a worker, so that workers have no workers of their own."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or _is_in_worker():
            return 1
        return n_jobs if n_jobs > 0 else max(joblib.cpu_count() + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Have workers for a call of Parallel, and give their number."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        told = {"name": "joblib", "idle_limit": _IDLE_LIMIT, **self.backend_kwargs, **options}
        told = {name: value for name, value in told.items() if name not in _NOT_OURS and value is not None}
        if self.inner_max_num_threads is not None:
            told["threads"] = self.inner_max_num_threads
        self._key = (n_jobs, told)
        self._executor = _take(self._key) or Executor(n_jobs, **told)
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Future], object] | None = None) -> Future:
        """Run a batch in a worker."""
        future = self._executor._submit(_run, (func,), {}, _title_of(func))
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future) -> Any:
        """Give the result of a batch, or raise what it raised."""
        return out.result()

    def terminate(self) -> None:
        """Keep the workers for the next call."""
        executor, self._executor = self._executor, None
        if executor is not None:
            _give(self._key, executor)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End the workers with what they run: nobody wants it any more."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor._abort()
        self.reset_batch_stats()
        if ensure_ready:
            self._executor = Executor(self._key[0], **self._key[1])


def _take(key: Any) -> Executor | None:
    """Give the executor that is kept, if it is such a one and works."""
    with _lock:
        if not _spare or _spare[0][0] != key:
            return None
        executor = _spare.pop()[1]
    return executor if executor._is_usable() else None


def _give(key: Any, executor: Executor) -> None:
    """Keep an executor in place of the one that was kept."""
    with _lock:
        before = _spare.pop()[1] if _spare else None
        _spare.append((key, executor))
    if before is not None:
        before.shutdown(wait=False)


def _forget() -> None:
    """Leave the executor to the process that made it, and was forked."""
    global _lock  # noqa: PLW0603 (somebody may have held it)
    _lock = threading.Lock()
    _spare.clear()


register()
os.register_at_fork(after_in_child=_forget)
