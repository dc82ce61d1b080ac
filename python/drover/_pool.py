"""Pools with the behaviour of multiprocessing's, on workers that heal, have devices, and are shown by `drover ps`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from multiprocessing import context, process, resource_tracker, spawn, util
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from drover import _core, _objects, _session, _template
from drover._errors import Cancelled, PeerLost, Unsupported
from drover._process import preparation_of
from drover._results import IMapIterator
from drover._tasks import TaskCalls

if TYPE_CHECKING:
    from drover._actors import Actor

__all__ = ["CLOSE", "RUN", "TERMINATE", "Pool", "this_worker"]

RUN, CLOSE, TERMINATE = "RUN", "CLOSE", "TERMINATE"


def this_worker() -> _core.Worker:
    """Give the worker of a pool that this process is: its index, name and device. Raises NotFound anywhere else."""
    return _core.this_worker()


class _OwnFd:
    """A descriptor that is closed when nobody refers to it any more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, _close: Any = os.close) -> None:
        _close(self.fd)


class _FdOfMaker:
    """A descriptor of the process that made the pool, which each worker opens for itself when it begins."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        self._maker = os.getpid()

    def detach(self) -> int:
        """Open it. The offset in a file is the opener's own."""
        # Else the end of a pipe is there only when somebody has the other one.
        fd = os.open(f"/proc/{self._maker}/fd/{self._fd}", self._mode | os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(fd, True)
        return fd


class _Starting:
    """Stands for the workers to be started while what they are given is pickled."""

    DupFd = _FdOfMaker

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def duplicate_for_child(self, fd: int) -> int:
        """Have a descriptor as long as the pool, for workers that are started later."""
        own = _OwnFd(os.dup(fd))
        try:
            os.close(_FdOfMaker(own.fd).detach())
        except OSError as error:
            raise Unsupported(
                f"workers cannot be given {os.readlink(f'/proc/self/fd/{fd}')} in initargs: {error.strerror}",
                "give them a drover.Queue, or an end of drover.Pipe(), in place of a socket",
            ) from error
        self.kept.append(own)
        return own.fd

    def keep_until_joined(self, shared: Any) -> None:
        """Let a shared object live as long as the pool: workers may be started at any time."""
        self.kept.append(shared)


def _start_payload(initializer: Any, initargs: Iterable[Any], is_executors: bool) -> tuple[bytes, Any, list[Any]]:
    """Give what workers are told before their first task, and what must live as long as they may be started."""
    told = preparation_of("worker")
    told["authkey"] = bytes(told["authkey"])
    starting = _Starting()
    context.set_spawning_popen(starting)
    try:
        beside, tensors = _objects.dumps((initializer, tuple(initargs)))
    finally:
        context.set_spawning_popen(None)
    tracker = (os.getpid(), process.current_process().name, resource_tracker.getfd())
    return pickle.dumps((told, beside, tracker, is_executors)), tensors, starting.kept


def _say_how_workers_start() -> None:
    arguments = [*util._args_from_interpreter_flags(), "-c", _template.WORKER]
    _core.init(os.fsdecode(spawn.get_executable()), arguments, _session._keeper())
    _template.prepare()


def _check(processes: int | None, initializer: Any, maxtasksperchild: int | None) -> None:
    if processes is not None and processes < 1:
        raise ValueError("Number of processes must be at least 1")
    if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
        raise ValueError("maxtasksperchild must be a positive int or None")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")


def _plan(processes: int | None, devices: str | None, placement: dict[str, Any]) -> _core.WorkerPlan:
    plan = _core.WorkerPlan()
    if processes is not None:
        plan.workers = processes
    elif devices is None and not placement.get("per_device"):
        plan.workers = os.cpu_count() or 1
    if devices is not None:
        plan.devices = devices
    for name, value in placement.items():
        if not hasattr(plan, name):
            raise TypeError(f"Pool() got an unexpected keyword argument {name!r}")
        setattr(plan, name, value)
    return plan


class Pool(TaskCalls):
    """Workers that run functions. One that dies is replaced, and takes with it only the task it ran.

    The first five arguments are those of `multiprocessing.Pool`. `devices` says which devices the workers get, in
    turn: "all", which is the default, "none", or names such as "cuda:0,cuda:1"; `per_device` how many workers each
    device gets. Who says nothing of placement has workers that open their devices only when they use them.
    `exclusive`, `sees_all`, `memory_budget`, `threads`, `affinity`, `mps` and `mps_percentage` are those of
    docs/placement.md. `retry` is how often a task is begun again whose worker died. `output` is where what workers
    print goes: "inherited", "forwarded" with the worker's name before each line, "discarded", or a file's path.
    """

    _is_executors = False  # whether what cannot be sent back is told as concurrent.futures does

    def __init__(  # noqa: PLR0913 (multiprocessing's, and ours by their names)
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        *,
        devices: str | None = None,
        retry: int | None = None,
        name: str = "pool",
        output: str = "inherited",
        start_limit: float = 60.0,
        idle_limit: float = 0.0,
        stall_report_after: float = 60.0,
        **placement: Any,
    ) -> None:
        """Start workers; does not wait for them."""
        del context
        self._state = TERMINATE  # until it has begun
        self._maker = os.getpid()
        _check(processes, initializer, maxtasksperchild)
        options = _core.PoolOptions()
        options.name = name
        options.recycle_after = maxtasksperchild or 0
        options.opens_device = devices is not None or bool(placement)
        options.set_limits(start_limit, idle_limit, stall_report_after)
        options.set_output(output)
        payload, tensors, self._kept = _start_payload(initializer, initargs, self._is_executors)
        options.set_start(payload, tensors)
        _say_how_workers_start()
        util._flush_std_streams()
        self._core = _core.Pool(_session.current(), _plan(processes, devices, placement), options)
        self._iterators: weakref.WeakSet[IMapIterator] = weakref.WeakSet()
        self._actors: weakref.WeakSet[Actor] = weakref.WeakSet()
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
        """The workers, for programs that look for their processes where multiprocessing has them."""
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
        """Give the calls of this pool with other options for their tasks: `pool.options(timeout=5).map(...)`.

        Tasks of a higher `priority` go first. `retry` is how often one is begun again whose worker died; -1: it is
        not given to another even if it had not begun. One that takes longer than `timeout` seconds is asked to stop
        (`this_worker().is_interrupted`), and its worker killed after `grace`. `worker` is the only one that runs it.
        """
        told = _core.TaskOptions(priority=priority, retry=retry, timeout=timeout or 0.0, grace=grace, worker=worker)
        return _WithOptions(self, told)

    def actor(
        self, kind: Callable[..., Any], /, *args: Any, worker: int | None = None, restart: bool = False, **kwargs: Any
    ) -> Actor:
        """Make an object in a worker: `kind(*args, **kwargs)`. Its methods give futures, and are run in order.

        `worker` is the number of the worker; else that with the fewest actors has it. When the worker's process dies,
        calls raise PeerLost; with `restart` the next one finds the object made anew.
        """
        from drover._actors import Actor, Recipe  # noqa: PLC0415 (needs executors, which need pools)

        self._check_running()
        if worker is None:
            taken = [actor.worker for actor in self._actors]
            worker = min(self._core.numbers() or [0], key=lambda number: (taken.count(number), number))
        made = Actor(self, worker, Recipe(kind, args, kwargs, restart), {"retry": 0})
        self._actors.add(made)
        return made

    def close(self) -> None:
        """Take no more tasks; those that it has are run."""
        if self._state == RUN:
            self._state = CLOSE

    def terminate(self) -> None:
        """End it now. Results that did not come raise Cancelled."""
        self._state = TERMINATE
        self._terminate()

    def join(self) -> None:
        """Wait until all tasks are done and the workers have ended. Only after close or terminate."""
        if self._state == RUN:
            raise ValueError("Pool is still running")
        for iterator in list(self._iterators):
            iterator._feed_all()
        if self._state == CLOSE and self._has_initializer:
            with contextlib.suppress(PeerLost, Cancelled):  # told by what the worker printed; joined already
                self._core.wait_ready(None)  # what it is for has happened, even if there never was a task
        self._core.join(None)
        self._kept.clear()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until every worker is ready; tell whether they are. Raises PeerLost if they cannot be started."""
        return self._core.wait_ready(timeout)

    def workers(self) -> list[dict[str, Any]]:
        """List the workers: index, name, pid, device, whether each is ready, and how much it has done."""
        return self._core.workers()

    def statistics(self) -> dict[str, int]:
        """Count what was done: tasks pending, in_flight, finished, failed, retried, moved; workers' restarts."""
        return self._core.statistics()

    def resize(self, processes: int) -> None:
        """Have more workers, or fewer; those that run a task finish it."""
        self._check_running()
        self._core.resize(processes)

    def stall_report(self) -> str:
        """Tell who does what and who waits for whom, with stacks."""
        return self._core.stall_report()

    def __enter__(self) -> Pool:
        """Use it for a block of statements, and terminate it then."""
        self._check_running()
        return self

    def __exit__(self, *_: object) -> None:
        """Terminate it."""
        self.terminate()

    def __reduce__(self) -> Any:
        """Refuse: a pool belongs to the process that made it."""
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        """Show its state and size."""
        kind = type(self)
        size = len(self._core.numbers()) if self._state == RUN else 0
        return f"<{kind.__module__}.{kind.__qualname__} state={self._state} pool_size={size}>"

    def __del__(self, _warn: Any = warnings.warn) -> None:
        """Warn if nobody ended it."""
        if self._state == RUN and self._maker == os.getpid() and not sys.is_finalizing():
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)


class _WithOptions(TaskCalls):
    """The calls of a pool with other options for their tasks."""

    def __init__(self, pool: Pool, options: _core.TaskOptions) -> None:
        self._of = pool
        self._task_options = options

    def _target(self) -> Pool:
        return self._of


def _end(core: _core.Pool, kept: list[Any]) -> None:
    core.end(0.0)
    kept.clear()
