"""Pools that behave like multiprocessing's, whose workers are replaced when they die and can have devices."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import context, process, util
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from drover import _core, _interpreter, _objects, _session, _template, _tracker
from drover._errors import CANNOT_START, Cancelled, Unsupported
from drover._process import preparation_of
from drover._results import IMapIterator
from drover._tasks import TaskCalls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from drover._actors import Actor
    from drover._types import Placement

__all__ = ["CLOSE", "RUN", "TERMINATE", "Pool", "this_worker"]

RUN, CLOSE, TERMINATE = "RUN", "CLOSE", "TERMINATE"


def this_worker() -> _core.Worker:
    """Return this process as a worker of a pool: its `index`, `name`, `device`, `session` and `is_interrupted`.

    Raises NotFound in any other process.
    """
    return _core.this_worker()


class _OwnFd:
    """A descriptor that is closed with the last reference."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, _close: Any = os.close) -> None:
        _close(self.fd)


class _OwnerFd:
    """A descriptor of the process that owns the pool; each worker reopens it when it starts."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        self._owner = os.getpid()

    def detach(self) -> int:
        """Reopen the descriptor. The offset in a file is not shared with the owner."""
        # O_NONBLOCK: opening one end of a pipe would otherwise wait for the other end.
        fd = os.open(f"/proc/{self._owner}/fd/{self._fd}", self._mode | os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(fd, True)
        return fd


class _Starting:
    """Stands in for a child that is being started while the initializer and its arguments are pickled."""

    DupFd = _OwnerFd

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def duplicate_for_child(self, fd: int) -> int:
        """Keep a duplicate as long as the pool exists, since workers may be started at any time."""
        own = _OwnFd(os.dup(fd))
        try:
            os.close(_OwnerFd(own.fd).detach())
        except OSError as error:
            raise Unsupported(
                f"cannot pass {os.readlink(f'/proc/self/fd/{fd}')} to workers in initargs: {error.strerror}",
                "pass a drover.Queue or an end of drover.Pipe() instead of a socket",
            ) from error
        self.kept.append(own)
        return own.fd

    def keep_until_joined(self, shared: Any) -> None:
        """Keep a shared object as long as the pool exists, since workers may be started at any time."""
        self.kept.append(shared)


def _start_payload(initializer: Any, initargs: Iterable[Any], is_executors: bool) -> tuple[bytes, Any, list[Any]]:
    """Return the payload and tensors for `_worker.start`, and the objects to keep as long as workers may start."""
    preparation = preparation_of("worker")
    preparation["authkey"] = bytes(preparation["authkey"])
    starting = _Starting()
    context.set_spawning_popen(starting)
    try:
        initializer_call, tensors = _objects.dumps((initializer, tuple(initargs)), by_reference=True)
    except Exception as error:
        importlib.import_module("drover._culprits").name_initializer(error, initializer)
        raise
    finally:
        context.set_spawning_popen(None)
    tracker = (os.getpid(), process.current_process().name, _tracker.descriptor())
    return pickle.dumps((preparation, initializer_call, tracker, is_executors)), tensors, starting.kept


def _set_worker_command() -> None:
    arguments = [*util._args_from_interpreter_flags(), "-c", _template.WORKER]
    _core.init(_interpreter.path(), arguments, _session._keeper())
    _template.prepare()


def _check(processes: int | None, initializer: Any, maxtasksperchild: int | None) -> None:
    if processes is not None and processes < 1:
        raise ValueError("Number of processes must be at least 1")
    if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
        raise ValueError("maxtasksperchild must be a positive int or None")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")


def _device_list(devices: Any) -> str:
    """Return devices as the C++ library reads them: "all", or a list of names with commas."""
    if isinstance(devices, str):
        return devices
    some = list(devices) if hasattr(devices, "__iter__") else [devices]
    # A torch.device has a type and perhaps an index; its text is such a name.
    is_good = [type(one) in (str, int) or isinstance(getattr(one, "type", None), str) for one in some]
    if not some or not all(is_good):
        raise TypeError(
            'devices must be "all", "none", or devices such as ["cuda:0", "cuda:1"] or "cuda:0,cuda:1", '
            f"not {devices!r}"
        )
    return ",".join(map(str, some))


@contextlib.contextmanager
def _naming(**options: Any) -> Iterator[None]:
    """Name the options whose types the extension refuses."""
    try:
        yield
    except TypeError as error:
        if "incompatible function arguments" not in str(error):
            raise
        shown = ", ".join(f"{name}={value!r} ({type(value).__name__})" for name, value in options.items())
        raise TypeError(f"a pool does not take this type of option: {shown}; see help(drover.Pool)") from None


def _plan(processes: int | None, devices: Any, placement: Placement) -> _core.WorkerPlan:
    plan = _core.WorkerPlan()
    if processes is not None:
        with _naming(processes=processes):
            plan.workers = processes
    elif devices is None and not placement.get("per_device"):
        plan.workers = os.cpu_count() or 1
    if devices is not None:
        plan.devices = _device_list(devices)
    for name, value in placement.items():
        if not hasattr(plan, name):
            raise TypeError(f"Pool() got an unexpected keyword argument {name!r}")
        with _naming(**{name: value}):
            setattr(plan, name, value)
    return plan


class Pool(TaskCalls):
    """Processes that run functions. A worker that dies is replaced; only the task it ran is lost.

    The first five arguments are those of `multiprocessing.Pool`; `context` is ignored. The others:

    - `devices`: the devices that workers get, in turn: "all" (the default), "none", or a list of names, numbers and
      torch.devices, such as ["cuda:0", "cuda:1"] or "cuda:0,cuda:1".
      Without `devices` or another placement option, workers open their device only when they use it.
    - `per_device`, `exclusive`, `sees_all`, `memory_budget`, `threads`, `affinity`, `mps`, `mps_percentage`:
      placement options; see docs/placement.md.
    - `retry`: how often a task is retried after its worker died. Without it, such a task raises PeerLost.
    - `output`: where the output of workers goes: "inherited", "forwarded" (the worker's name precedes each line),
      "discarded", or the path of a file.
    - `name`: the name of the pool in `drover ps`.
    - `start_limit`: seconds that a worker may take to start.
    - `idle_limit`: seconds after which an idle worker ends; 0 for never.
    - `stall_report_after`: seconds without progress after which a report is printed; 0 for never.

    Raises ValueError or TypeError for invalid arguments.

    >>> import drover
    >>> def square(n):
    ...     return n * n
    >>> with drover.Pool(2) as pool:
    ...     pool.map(square, range(5))
    [0, 1, 4, 9, 16]
    """

    _is_executors = False  # whether a result that cannot be sent is reported as in concurrent.futures

    def __init__(  # noqa: PLR0913 (multiprocessing's arguments, and ours by keyword)
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        *,
        devices: str | int | Iterable[Any] | None = None,
        retry: int | None = None,
        name: str = "pool",
        output: str = "inherited",
        start_limit: float = 60.0,
        idle_limit: float = 0.0,
        stall_report_after: float = 60.0,
        **placement: Unpack[Placement],
    ) -> None:
        """Start the workers without waiting for them."""
        del context
        self._state = TERMINATE  # until the constructor is done
        self._owner = os.getpid()
        _check(processes, initializer, maxtasksperchild)
        options = _core.PoolOptions()
        with _naming(name=name):
            options.name = name
        options.recycle_after = maxtasksperchild or 0
        options.opens_device = devices is not None or bool(placement)
        with _naming(start_limit=start_limit, idle_limit=idle_limit, stall_report_after=stall_report_after):
            options.set_limits(start_limit, idle_limit, stall_report_after)
        if min(idle_limit, stall_report_after) < 0:
            raise ValueError(f"{idle_limit=} and {stall_report_after=} must not be negative; 0 means never")
        with _naming(output=output):
            options.set_output(output)
        _set_worker_command()
        payload, tensors, self._kept = _start_payload(initializer, initargs, self._is_executors)
        options.set_start(payload, tensors)
        util._flush_std_streams()
        self._core = _core.Pool(_session.current(), _plan(processes, devices, placement), options)
        self._iterators: weakref.WeakSet[IMapIterator[Any]] = weakref.WeakSet()
        self._actors: weakref.WeakSet[Actor] = weakref.WeakSet()
        with _naming(retry=retry):
            self._task_options = _core.TaskOptions(retry=retry)
        self._has_initializer = initializer is not None
        self._state = RUN
        self._terminate = util.Finalize(self, _end, args=(self._core, self._kept), exitpriority=15)

    def _check_running(self) -> None:
        if self._state != RUN:
            raise ValueError("Pool not running")

    def _target(self) -> Pool:
        return self

    @property
    def _pool(self) -> list[SimpleNamespace]:
        """The workers, for programs that use this private attribute of multiprocessing's pools."""
        return [SimpleNamespace(**worker) for worker in self._core.workers()]

    def options(
        self,
        *,
        priority: int = 0,
        retry: int | None = None,
        timeout: float | None = None,
        grace: float = 1.0,
        worker: int | None = None,
    ) -> TaskCalls:
        """Return the call methods of this pool with options for their tasks: `pool.options(timeout=5).map(...)`.

        - `priority`: tasks of a higher priority run first.
        - `retry`: how often a task is retried after its worker died. With -1, not even a task that had not started
          moves to another worker.
        - `timeout`: seconds after which a task is asked to stop (`this_worker().is_interrupted`).
        - `grace`: seconds after the timeout until the worker is killed.
        - `worker`: the index of the only worker that may run the task.
        """
        with _naming(priority=priority, retry=retry, timeout=timeout, grace=grace, worker=worker):
            options = _core.TaskOptions(
                priority=priority, retry=retry, timeout=timeout or 0.0, grace=grace, worker=worker
            )
        return _WithOptions(self, options)

    def actor(
        self, kind: Callable[..., Any], /, *args: Any, worker: int | None = None, restart: bool = False, **kwargs: Any
    ) -> Actor:
        """Create an object in a worker, `kind(*args, **kwargs)`. Its methods return futures and run in order.

        `worker` is the index of the worker; by default it is the one with the fewest actors. When the process of that
        worker dies, calls raise PeerLost; with `restart` the next call recreates the object.
        """
        from drover._actors import Actor, Recipe  # noqa: PLC0415 (imports executors, which import pools)

        self._check_running()
        if worker is None:
            taken = [actor.worker for actor in self._actors]
            worker = min(self._core.numbers() or [0], key=lambda number: (taken.count(number), number))
        actor = Actor(self, worker, Recipe(kind, args, kwargs, restart), {"retry": 0})
        self._actors.add(actor)
        return actor

    def close(self) -> None:
        """Refuse new tasks; submitted ones still run."""
        if self._state == RUN:
            self._state = CLOSE

    def terminate(self) -> None:
        """Kill the workers. Results that are not there yet raise Cancelled."""
        self._state = TERMINATE
        self._terminate()

    def join(self) -> None:
        """Wait until all tasks are done and the workers have ended.

        Raises ValueError unless the pool was closed or terminated.
        """
        if self._state == RUN:
            raise ValueError("Pool is still running")
        for iterator in list(self._iterators):
            iterator._feed_all()
        if self._state == CLOSE and self._has_initializer:
            with contextlib.suppress(
                *CANNOT_START, Cancelled
            ):  # the worker has printed why; or join was called before
                self._core.wait_ready(None)  # initializers run even if there never was a task
        self._core.join(None)
        self._kept.clear()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until every worker is ready; return False at the timeout.

        If workers cannot start, raises the cause, such as LimitReached, or PeerLost if they just ended.
        """
        return self._core.wait_ready(timeout)

    def workers(self) -> list[dict[str, Any]]:
        """Return a dict for each worker: index, name, pid, device, device_uuid, is_ready, done and starts."""
        return self._core.workers()

    def statistics(self) -> dict[str, int]:
        """Return counts of tasks: pending, in_flight, finished, failed, retried and moved; and of worker restarts."""
        return self._core.statistics()

    def resize(self, processes: int) -> None:
        """Change the number of workers. A worker to be removed first finishes its task."""
        self._check_running()
        self._core.resize(processes)

    def stall_report(self) -> str:
        """Return a report of what each worker does and waits for, with stacks."""
        return self._core.stall_report()

    def __enter__(self) -> Pool:
        """Return this pool; raise ValueError if it is closed."""
        self._check_running()
        return self

    def __exit__(self, *_: object) -> None:
        """Terminate the pool."""
        self.terminate()

    def __reduce__(self) -> Any:
        """Refuse to be pickled: a pool belongs to the process that created it."""
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        """Show the state and size."""
        kind = type(self)
        size = len(self._core.numbers()) if self._state == RUN else 0
        return f"<{kind.__module__}.{kind.__qualname__} state={self._state} pool_size={size}>"

    def __del__(self, _warn: Any = warnings.warn) -> None:
        """Warn if the pool is still running."""
        if self._state == RUN and self._owner == os.getpid() and not sys.is_finalizing():
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)


class _WithOptions(TaskCalls):
    """The call methods of a pool with options for their tasks."""

    def __init__(self, pool: Pool, options: _core.TaskOptions) -> None:
        self._of = pool
        self._task_options = options

    def _target(self) -> Pool:
        return self._of


def _end(core: _core.Pool, kept: list[Any]) -> None:
    core.end(0.0)
    kept.clear()
