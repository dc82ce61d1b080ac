"""A joblib backend on drover's workers: `with joblib.parallel_config(backend="drover")`.

The backend is registered once a program has imported drover and joblib, in any order, or this module.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import joblib
from joblib._parallel_backends import FallbackToBackend, SequentialBackend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from drover import _core, _functions
from drover._errors import Error, NotFound
from drover._executor import Executor, Future

__all__ = ["DroverBackend", "register"]

# Options that Parallel passes to every backend, and that only backends with memory-mapped arrays use.
_IGNORED = frozenset(
    {"context", "context_id", "max_nbytes", "mmap_mode", "prefer", "require", "temp_folder", "verbose"}
)
_IDLE_LIMIT = 300.0  # seconds after which idle workers end

# The executor of the last call, with its key: workers are reused by the next call.
_spare: list[tuple[Any, Executor]] = []
_lock = threading.Lock()


def register() -> None:
    """Register the backend with joblib as "drover"."""
    register_parallel_backend("drover", DroverBackend)


def _title_of(batch: Any) -> str:
    """Return the name of the function that a batch calls."""
    items = getattr(batch, "items", None)
    return _functions.title_of(items[0][0] if items else batch)


def _run(batch: Callable[[], Any]) -> Any:
    """Run a batch in a worker, under the name of its function."""
    _core.this_worker().set_title(_title_of(batch))
    return batch()


def _is_in_worker() -> bool:
    try:
        _core.this_worker()
    except NotFound:
        return False
    return True


class DroverBackend(AutoBatchingMixin, ParallelBackendBase):
    """Runs batches of joblib in the workers of a `drover.Executor`, whose options are those of the backend.

    Workers are kept for the next call with the same options and end after five idle minutes. A worker that dies is
    replaced; the call raises PeerLost, or retries the batch with `retry=n`. As in joblib's own backends, calls nested
    in a task use threads, and calls nested in those run sequentially.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    _executor: Executor | None = None
    _key: Any = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of workers to use: 1 inside of a worker, so that calls do not nest processes."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or _is_in_worker():
            return 1
        return n_jobs if n_jobs > 0 else max(joblib.cpu_count() + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Get workers for a call of Parallel; return their number."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        merged = {"name": "joblib", "idle_limit": _IDLE_LIMIT, **self.backend_kwargs, **options}
        wanted = {name: value for name, value in merged.items() if name not in _IGNORED and value is not None}
        if self.inner_max_num_threads is not None:
            wanted["threads"] = self.inner_max_num_threads
        # Kept workers have the variables of the program at their start.
        threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
        self._key = (n_jobs, wanted, threads)
        self._executor = _take(self._key) or Executor(n_jobs, **wanted)
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Future], object] | None = None) -> Future:
        """Run a batch in a worker."""
        try:
            future = self._executor._submit(_run, (func,), {}, _title_of(func))
        except (Error, pickle.PicklingError):
            raise
        except Exception as error:  # of the objects in the batch; joblib's programs expect a PicklingError
            raise pickle.PicklingError(f"cannot pickle the task to send to a worker: {error!r}") from error
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future) -> Any:
        """Return the result of a batch, or raise its exception."""
        return out.result()

    def terminate(self) -> None:
        """Keep the workers for the next call."""
        executor, self._executor = self._executor, None
        if executor is not None:
            _keep(self._key, executor)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Kill the workers, whatever they run."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor._abort()
        self.reset_batch_stats()
        if ensure_ready:
            self._executor = Executor(self._key[0], **self._key[1])


def _take(key: Any) -> Executor | None:
    """Return the kept executor if it has this key and is usable."""
    with _lock:
        if not _spare or _spare[0][0] != key:
            return None
        executor = _spare.pop()[1]
    return executor if executor._is_usable() else None


def _keep(key: Any, executor: Executor) -> None:
    """Keep an executor, and shut down the one kept before."""
    with _lock:
        before = _spare.pop()[1] if _spare else None
        _spare.append((key, executor))
    if before is not None:
        before.shutdown(wait=False)


def _forget() -> None:
    """Reset this module in a forked child: the executor stays with the parent."""
    global _lock  # noqa: PLW0603 (the lock may have been held during the fork)
    _lock = threading.Lock()
    _spare.clear()


register()
os.register_at_fork(after_in_child=_forget)
