"""Run CPython's own tests of process pools of concurrent.futures with `drover.Executor` in their place.

    python cpython_futures.py                 all of them
    python cpython_futures.py WaitTests ...   some classes, as the test package names them

Exit status 0: all passed; 1: some did not; 77: this interpreter has no such tests, and it is told where they are had.
"""

from __future__ import annotations

import importlib
import os
import sys
import unittest
from concurrent import futures
from types import ModuleType

import drover

NO_TESTS = 77

# In one module up to Python 3.11, in several since.
_WHOLE = "test.test_concurrent_futures"
_PARTS = ("util", "executor", "test_as_completed", "test_init", "test_process_pool", "test_shutdown", "test_wait")

# The package is built for one interpreter, so another one needs a build of its own.
_ADVICE = """{prefix} (Python {version}) has no {module}. With an interpreter that has its whole test package:
    PYTHON -m venv /tmp/venv && /tmp/venv/bin/pip install nanobind==3.1.0 cloudpickle numpy pytest
    cmake --preset dev -B build/other -DDROVER_BUILD_PYTHON=ON -DPython_EXECUTABLE=/tmp/venv/bin/python
    cmake --build build/other --target drover_python drover_cli
    DROVER_BUILD_DIR=$PWD/build/other /tmp/venv/bin/python -m pytest tests/python/test_cpython_futures.py"""

CLASSES = (
    "AsCompletedTests",
    "WaitTests",
    "ProcessPoolExecutorTest",
    "ProcessPoolShutdownTest",
    "InitializerMixin",
    "FailingInitializerMixin",
)

# Tests that are left out, and why.
_PROCESSES = "looks at the private table of processes"
_STARTED = "expects that a worker has begun when 50 calls are submitted; all are cancelled if none is ready"
_TEXT = "a program of its own that imports from concurrent.futures what our class is called"
_ALL = "looks at how many processes were started on demand; here all are started at once"
LEFT_OUT = {
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": _ALL,
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": _ALL,
    "ProcessPoolExecutorTest.test_saturation": _ALL,
    "ProcessPoolExecutorTest.test_killed_child": "the death of a worker does not break the executor",
    "ProcessPoolExecutorTest.test_traceback": "the cause is multiprocessing's RemoteTraceback, not a private class",
    "ProcessPoolExecutorTest.test_max_tasks_per_child": _PROCESSES,
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": "looks at the private context",
    "ProcessPoolExecutorTest.test_python_finalization_error": "patches a private thread",
    "ProcessPoolShutdownTest.test_cancel_futures": _STARTED,
    "ProcessPoolShutdownTest.test_context_manager_shutdown": _PROCESSES,
    "ProcessPoolShutdownTest.test_del_shutdown": "looks at a private thread",
    "ProcessPoolShutdownTest.test_processes_terminate": _PROCESSES,
    "ProcessPoolShutdownTest.test_shutdown_no_wait": _PROCESSES,
    "ProcessPoolShutdownTest.test_interpreter_shutdown": _TEXT,
    "ProcessPoolShutdownTest.test_submit_after_interpreter_shutdown": _TEXT,
}


def advice() -> str:
    """Say what to use where this interpreter has no such tests."""
    return _ADVICE.format(prefix=sys.base_prefix, version=sys.version.split()[0], module=_WHOLE)


def _load() -> list[ModuleType]:
    whole = importlib.import_module(_WHOLE)
    if hasattr(whole, "ExecutorMixin"):
        return [whole]
    return [importlib.import_module(f"{_WHOLE}.{name}") for name in _PARTS]


def _find(modules: list[ModuleType], name: str) -> type:
    return next(vars(module)[name] for module in modules if name in vars(module))


def _make_class(modules: list[ModuleType], name: str) -> type:
    """Give the tests of a class with our executor, less those that are left out."""
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
    """Run the classes of these names."""
    futures.ProcessPoolExecutor = drover.Executor  # which some tests make by its name
    try:
        modules = _load()
    except ModuleNotFoundError as error:
        if error.name not in ("test", _WHOLE):
            raise
        print(advice())
        return NO_TESTS
    tests = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(_make_class(modules, name)) for name in names or CLASSES
    )
    return 0 if unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    sys.exit(main(sys.argv[1:]))
