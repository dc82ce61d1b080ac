"""What `import drover` imports: programs that only look at the package should not wait for it."""

from __future__ import annotations

import pytest
from programs import run

HEAVY = {
    "ast", "asyncio", "concurrent.futures", "dataclasses", "hashlib", "importlib.resources", "inspect", "json",
    "logging", "numpy", "pathlib", "secrets", "torch", "traceback", "unittest", "urllib.parse",
}  # fmt: skip


def test_import_leaves_out_what_takes_long_and_may_not_be_needed() -> None:
    """Apart from what multiprocessing imports by itself."""
    lines = run(f"""
        import multiprocessing.connection
        import multiprocessing.sharedctypes
        import multiprocessing.synchronize
        import sys

        before = set(sys.modules)
        import drover
        print(sorted((set(sys.modules) - before) & {HEAVY}))
    """)
    assert lines == ["[]"]


@pytest.mark.parametrize("use", ["drover.Executor(1)", "__import__('drover', fromlist=['Executor']).Executor(1)"])
def test_executor_is_imported_when_it_is_used(use: str) -> None:
    """Also by `from drover import *`, which asks for all names."""
    lines = run(f"""
        import drover
        import sys

        print("concurrent.futures" in sys.modules)
        with {use} as executor:
            print(executor.submit(abs, -1).result())
        exec("from drover import *")
        print(Executor is drover.Executor, drover.Executor.__name__)
    """)
    assert lines == ["False", "1", "True Executor"]
