"""Run CPython's own tests of multiprocessing, from the interpreter's test package, on drover.

    python cpython_suite.py WithProcessesTestQueue ...     some classes
    python cpython_suite.py --list                         the names of all classes
    python cpython_suite.py --unknown                      the names of classes that cpython_cases.py does not list

Exit status 0: all passed; 1: some failed; 77: this interpreter has no test package.
"""

from __future__ import annotations

import importlib
import os
import sys
import unittest
from types import ModuleType

import drover
from cpython_cases import CLASSES, LEFT_OUT, NO_TESTS, NOT_RUN, run_suite

# Modules that the standard library and its tests import by name.
_SUBMODULES = (
    "connection",
    "dummy",
    "heap",
    "managers",
    "pool",
    "queues",
    "reduction",
    "resource_sharer",
    "resource_tracker",
    "shared_memory",
    "sharedctypes",
    "spawn",
    "synchronize",
    "util",
)


def load() -> ModuleType:
    """Import the tests with drover in place of multiprocessing. Children do the same."""
    standard = {"multiprocessing": importlib.import_module("multiprocessing")}
    ours = {"multiprocessing": drover}
    for name in _SUBMODULES:
        full = f"multiprocessing.{name}"
        standard[full] = importlib.import_module(full)
        ours[full] = getattr(drover, name, None) or standard[full]
        setattr(drover, name, ours[full])
    sys.modules.update(ours)
    sys.modules.pop("test._test_multiprocessing", None)  # a template may have imported it with the standard one
    try:
        return importlib.import_module("test._test_multiprocessing")
    finally:
        sys.modules.update(standard)


try:
    suite = load()
except ModuleNotFoundError as error:
    if error.name not in ("test", "test._test_multiprocessing"):
        raise
    sys.exit(NO_TESTS)


def _private(_: object) -> None:
    raise NotImplementedError


# The test of conditions reads three private semaphores, and accepts that there are none.
for _name in ("_sleeping_count", "_woken_count", "_wait_semaphore"):
    setattr(drover.synchronize.Condition, _name, property(_private))
suite.install_tests_in_module_dict(globals(), "spawn")


def leave_out(name: str, reason: str) -> None:
    """Skip a test; raise if there is none with this name."""
    class_name, test = name.split(".")
    case = globals()[class_name]
    setattr(case, test, unittest.skip(f"left out: {reason}")(getattr(case, test)))


def unknown() -> list[str]:
    """Return the names of classes that are neither run nor listed with a reason."""
    cases = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    names = {type(case).__name__ for tests in cases for case in tests}  # type: ignore[union-attr]
    return sorted(name for name in names - {*CLASSES, *NOT_RUN} if not name.startswith("WithThreads"))


def main(names: list[str]) -> int:
    """Run the classes or tests with these names, or all."""
    if names == ["--list"]:
        print(*CLASSES, sep="\n")
        return 0
    if names == ["--unknown"]:
        print(*unknown(), sep="\n")
        return 0
    for name, reason in LEFT_OUT.items():
        leave_out(name, reason)
    return run_suite(unittest.defaultTestLoader.loadTestsFromNames(names or CLASSES, sys.modules[__name__]))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    sys.exit(main(sys.argv[1:]))
