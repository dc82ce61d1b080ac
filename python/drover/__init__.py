"""Multiprocessing for GPUs: a drop-in replacement whose tensors cross processes without a copy."""

from __future__ import annotations

import importlib
import sys
from multiprocessing import (
    AuthenticationError,
    BufferTooShort,
    ProcessError,
    TimeoutError,  # noqa: A004 (multiprocessing's name)
    active_children,
    context,
    current_process,
    parent_process,
    process,
    reduction,
    resource_tracker,
    spawn,
    util,
)
from typing import TYPE_CHECKING, Any

from drover import _core, _early, _errors, _guard, _import_hooks, _session
from drover._errors import *  # noqa: F403 (all of its __all__)
from drover._guard import ForkAfterCudaWarning

_session.initialise()
_guard.install()
_early.install()

from drover._arrays import array, empty, zeros  # noqa: E402
from drover._context import DroverContext, default  # noqa: E402 (needs the two calls above)
from drover._device_arrays import register_array  # noqa: E402
from drover._named_sessions import Session  # noqa: E402
from drover._pool import Pool, this_worker  # noqa: E402
from drover._process import Process  # noqa: E402
from drover._queues import JoinableQueue, Queue, SimpleQueue  # noqa: E402
from drover._synchronize import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore  # noqa: E402
from drover._template import TemplateWarning, set_preload, use_template, warm_up  # noqa: E402

__version__ = _core.version

Array = default.Array
Manager = default.Manager
Pipe = default.Pipe
RawArray = default.RawArray
RawValue = default.RawValue
Value = default.Value
allow_connection_pickling = default.allow_connection_pickling
cpu_count = default.cpu_count
freeze_support = default.freeze_support
get_all_start_methods = default.get_all_start_methods
get_context = default.get_context
get_logger = default.get_logger
get_start_method = default.get_start_method
log_to_stderr = default.log_to_stderr
reducer = default.reducer
set_executable = default.set_executable
set_forkserver_preload = default.set_forkserver_preload
set_start_method = default.set_start_method

# Importing drover.joblib registers the backend.
_import_hooks.call_once_imported("joblib.parallel", lambda: importlib.import_module("drover.joblib"))
_import_hooks.call_once_imported("multiprocessing.managers", lambda: importlib.import_module("drover._managers"))

# Modules of multiprocessing that are imported anyway. The others are files of this package, imported on first use.
for _module in (context, process, reduction, resource_tracker, spawn, util):
    sys.modules[f"drover.{_module.__name__.rpartition('.')[2]}"] = _module
_LAZY_MODULES = frozenset(
    {"connection", "dummy", "joblib", "managers", "pool", "queues", "shared_memory", "sharedctypes", "synchronize"}
)


if TYPE_CHECKING:
    from drover import connection as connection
    from drover import dummy as dummy
    from drover import managers as managers
    from drover import pool as pool
    from drover import queues as queues
    from drover import shared_memory as shared_memory
    from drover import sharedctypes as sharedctypes
    from drover import synchronize as synchronize
    from drover._executor import Executor
else:

    def __getattr__(name: str) -> Any:
        """Import on first use `Executor`, and submodules such as `drover.connection` in `drover.connection.wait`."""
        if name == "Executor":
            globals()[name] = importlib.import_module("drover._executor").Executor
            return globals()[name]
        if name in _LAZY_MODULES:
            return importlib.import_module(f"drover.{name}")
        raise AttributeError(f"module 'drover' has no attribute {name!r}")


__all__ = [
    "Array",
    "AuthenticationError",
    "Barrier",
    "BoundedSemaphore",
    "BufferTooShort",
    "Condition",
    "DroverContext",
    "Event",
    "Executor",
    "ForkAfterCudaWarning",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "ProcessError",
    "Queue",
    "RLock",
    "RawArray",
    "RawValue",
    "Semaphore",
    "Session",
    "SimpleQueue",
    "TemplateWarning",
    "TimeoutError",
    "Value",
    "active_children",
    "allow_connection_pickling",
    "array",
    "context",
    "cpu_count",
    "current_process",
    "empty",
    "freeze_support",
    "get_all_start_methods",
    "get_context",
    "get_logger",
    "get_start_method",
    "log_to_stderr",
    "parent_process",
    "process",
    "reducer",
    "reduction",
    "register_array",
    "set_executable",
    "set_forkserver_preload",
    "set_preload",
    "set_start_method",
    "this_worker",
    "use_template",
    "util",
    "warm_up",
    "zeros",
]
__all__ += _errors.__all__
