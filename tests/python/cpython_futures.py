"""Run CPython's own tests of concurrent.futures process pools with `drover.Executor`.

    python cpython_futures.py                 all of them
    python cpython_futures.py WaitTests ...   some classes, as the test package names them

Exit status 0: all passed; 1: some failed; 77: this interpreter lacks the tests, and a remedy is printed.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import unittest
import weakref
from concurrent import futures
from multiprocessing import connection
from multiprocessing.pool import RemoteTraceback
from pathlib import Path
from types import ModuleType
from typing import Any

import drover
from cpython_cases import NO_TESTS, run_suite

# One module up to Python 3.11, several since.
_WHOLE = "test.test_concurrent_futures"
_PARTS = (
    "util",
    "executor",
    "test_as_completed",
    "test_deadlock",
    "test_init",
    "test_process_pool",
    "test_shutdown",
    "test_wait",
)
_PACKAGE = Path(__file__).with_name("cpython_package")
# Ends a wait for a worker that hangs.
_LIMIT_S = 60

_ADVICE = """there is no {module} for {prefix} (Python {version}). `make setup` unpacks it in .venv from the package
libpython{short}-testsuite where apt-get has it; `rm -r .venv/cpython-tests && make setup` tries again. Otherwise,
with an interpreter that has its whole test package:
    PYTHON -m venv /tmp/venv && /tmp/venv/bin/pip install nanobind==3.1.0 cloudpickle numpy pytest
    cmake --preset dev -B build/other -DDROVER_BUILD_PYTHON=ON -DPython_EXECUTABLE=/tmp/venv/bin/python
    cmake --build build/other --target drover_python drover_cli
    DROVER_BUILD_DIR=$PWD/build/other /tmp/venv/bin/python -m pytest tests/python/test_cpython_futures.py"""

# The classes, and the least number of tests of each that must pass.
CLASSES = {
    "AsCompletedTests": 5,
    "WaitTests": 8,
    "ProcessPoolExecutorTest": 15 if sys.version_info >= (3, 11) else 13,
    "ProcessPoolShutdownTest": 8,
    "ExecutorDeadlockTest": 8,
    "InitializerMixin": 1,
    "FailingInitializerMixin": 1,
}

# Tests that are left out, and why: they test private details, or a difference listed in docs/python_pool.md.
_ON_DEMAND = "private: counts processes started on demand; ours all start at once"
_THREAD = "private: joins the management thread of the standard executor"
_AT_SUBMIT = "differs: an argument that cannot be sent raises in submit, in the caller"
_OWN_ERROR = "differs: an object that cannot be unpickled raises for its own task and breaks no executor"
LEFT_OUT = {
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": _ON_DEMAND,
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": _ON_DEMAND,
    "ProcessPoolExecutorTest.test_killed_child": (
        "differs: expects that a killed worker breaks the executor; ours replaces the worker and goes on "
        "(test_executor.py: test_killed_worker_is_replaced)"
    ),
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": "private: reads _mp_context",
    "ProcessPoolExecutorTest.test_python_finalization_error": "private: patches the start of its thread",
    "ProcessPoolShutdownTest.test_processes_terminate": _ON_DEMAND,
    "ExecutorDeadlockTest.test_error_at_task_pickle": _AT_SUBMIT,
    "ExecutorDeadlockTest.test_error_at_task_unpickle": _OWN_ERROR,
    "ExecutorDeadlockTest.test_exit_at_task_unpickle": _OWN_ERROR,
    "ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler": _OWN_ERROR,
    "ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler": _OWN_ERROR,
    "ExecutorDeadlockTest.test_gh105829_should_not_deadlock_if_wakeup_pipe_full": _THREAD,
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": _AT_SUBMIT,
}


def advice() -> str:
    """Return the remedy if the tests are not installed for this interpreter."""
    version = sys.version.split()[0]
    short = ".".join(version.split(".")[:2])
    return _ADVICE.format(prefix=sys.base_prefix, version=version, short=short, module=_WHOLE)


def _load() -> list[ModuleType]:
    whole = importlib.import_module(_WHOLE)
    if hasattr(whole, "ExecutorMixin"):
        return [whole]
    return [importlib.import_module(f"{_WHOLE}.{name}") for name in _PARTS]


def _find(modules: list[ModuleType], name: str) -> type:
    found = next((vars(module)[name] for module in modules if name in vars(module)), None)
    if found is None:
        raise LookupError(f"{_WHOLE} has no {name}")
    return found


class _Process:
    """A worker with the interface that the tests use."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._descriptor)

    def join(self) -> None:
        """Wait until the worker has ended."""
        assert connection.wait([self._descriptor], _LIMIT_S), "a worker hangs"


class _Inside:
    """Stands in for private parts of the standard executor, which tests join before they join the workers."""

    def join(self) -> None:
        """Do nothing."""

    join_thread = join


def _processes(executor: drover.Executor) -> dict[int, _Process]:
    """Return the table of processes that the standard executor has as a private attribute."""
    executor._pool.wait_ready()
    return {worker["pid"]: _Process(worker["pid"]) for worker in executor.workers()}


def _stand_in(modules: list[ModuleType]) -> None:
    """Replace the standard executor and its private parts by ours, wherever the tests use them."""
    futures.ProcessPoolExecutor = drover.Executor
    futures.process._RemoteTraceback = RemoteTraceback
    drover.Executor._processes = property(_processes)
    drover.Executor._executor_manager_thread = drover.Executor._call_queue = _Inside()
    for module in modules:
        if hasattr(module, "assert_python_ok"):
            module.assert_python_ok = functools.partial(_run_program, module.assert_python_ok)


def _run_program(run: Any, option: str, text: str) -> Any:
    """Run a test's program with our executor; PYTHONPATH lets it find the package."""
    standard = "from concurrent.futures import Executor\n"
    assert standard in text, text
    return run(option, text.replace(standard, "from drover import Executor\n"), PYTHONPATH=os.environ["PYTHONPATH"])


def _make_class(modules: list[ModuleType], name: str) -> type:
    """Return a class of tests with our executor, without those that are left out."""
    mixin = _find(modules, "ExecutorMixin")
    ours = {"executor_type": drover.Executor, "ctx": "spawn", "get_context": lambda _: drover.get_context()}
    executor = type("DroverMixin", (mixin,), ours)
    made = type(name, (_find(modules, name), executor, _find(modules, "BaseTestCase")), {"__module__": __name__})
    for case, reason in LEFT_OUT.items():
        class_name, test = case.split(".")
        if class_name == name and hasattr(made, test):
            setattr(made, test, unittest.skip(f"left out: {reason}")(getattr(made, test)))
    return made


def main(names: list[str]) -> int:
    """Run the classes with these names, or all."""
    sys.path.insert(0, str(_PACKAGE))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_PACKAGE), os.environ.get("PYTHONPATH")]))
    try:
        modules = _load()
    except ModuleNotFoundError as error:
        if error.name not in ("test.support", _WHOLE):
            raise
        print(advice())
        return NO_TESTS
    _stand_in(modules)
    tests = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(_make_class(modules, name)) for name in names or CLASSES
    )
    return run_suite(tests)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    sys.exit(main(sys.argv[1:]))
