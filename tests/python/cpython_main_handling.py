"""Run CPython's own tests of how processes get the main module, with drover as the start method.

    python cpython_main_handling.py

Each program of these tests is started with a `sitecustomize` that imports drover, so that its
`multiprocessing.set_start_method("drover")` is known. Exit status 0: all passed; 1: some failed; 77: this interpreter
has no test package.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from cpython_cases import NO_TESTS, run_suite

_MODULE = "test.test_multiprocessing_main_handling"


def _cases() -> list[type[unittest.TestCase]]:
    tests: Any = importlib.import_module(_MODULE)
    script: Any = importlib.import_module("test.support.script_helper")
    run = functools.partial(script.assert_python_ok, PYTHONPATH=os.environ["PYTHONPATH"])  # otherwise it is ignored
    tests.AVAILABLE_START_METHODS, tests.assert_python_ok = {"drover"}, run

    class DroverCmdLineTest(tests.MultiProcessingCmdLineMixin, unittest.TestCase):
        """As with fork, also functions of a `__main__.py` can be called in other processes."""

        start_method = "drover"
        main_in_children_source = tests.test_source

    class NoForkBombTest(unittest.TestCase):
        """A program without a guard starts one process; with the standard spawn it fails."""

        def test_program_without_a_guard(self) -> None:
            """It runs, once."""
            program = Path(tests.__file__).with_name("mp_fork_bomb.py")
            _, out, err = run(str(program), "drover", __isolated=False)
            assert (out.split(), err) == ([b"123"], b"")

    return [DroverCmdLineTest, NoForkBombTest]


def main() -> int:
    """Run all tests."""
    with tempfile.TemporaryDirectory(prefix="drover_test_") as folder:
        Path(folder, "sitecustomize.py").write_text("import drover\n", encoding="utf-8")
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
        try:
            cases = _cases()
        except ModuleNotFoundError as error:
            if error.name not in ("test", "test.support", _MODULE):
                raise
            return NO_TESTS
        tests = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in cases)
        return run_suite(tests)


if __name__ == "__main__":
    sys.exit(main())
