"""A plugin of pytest: joblib's own tests find drover where they ask for joblib's process backends.

    python -m pytest -p joblib_on_drover --pyargs joblib.test.test_parallel

Both of joblib's process backends are replaced, so tests of "multiprocessing" would repeat those of "loky"; these, and
tests of other backends only, are not run.
"""

from __future__ import annotations

from typing import Any

import drover.joblib
from joblib import parallel

for _name in ("loky", "multiprocessing"):
    parallel.BACKENDS[_name] = drover.joblib.DroverBackend
del parallel.BACKENDS["drover"]

OTHERS = ("multiprocessing", "threading", "sequential")
_PROGRAM = "it starts a program, which this plugin does not reach; test_joblib.py has such programs"
_TYPE = "it asks for the type of joblib's own backend"
_MAPPED = "it asks for numpy.memmap; drover shares arrays in memory of its own"
_NAMED = "it expects the warning or the error of one of joblib's backends where drover needs none"
# By the names of the tests, with the reason.
LEFT_OUT = {
    "test_auto_memmap_on_arrays_from_generator": _MAPPED,
    "test_backend_context_manager": _TYPE,
    "test_backend_hinting_and_constraints": _TYPE,
    "test_error_capture": "it reads the private attribute of the backend that has the workers",
    "test_memmapping_leaks": _MAPPED,
    "test_multiple_generator_call_separated_gc": _NAMED,
    "test_nested_parallel_warnings": _NAMED,
    "test_nested_parallelism_limit": _TYPE,
    "test_parallel_with_interactively_defined_bound_method_loky": _PROGRAM,
    "test_parallel_with_interactively_defined_functions": _PROGRAM,
    "test_parallel_with_interactively_defined_functions_loky": _PROGRAM,
    "test_parallel_with_unpicklable_functions_in_args": _PROGRAM,
}


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Deselect what is left out, and what is about other backends."""
    left_out = [item for item in items if item.originalname in LEFT_OUT or _is_of_others(item.name)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_of_others(name: str) -> bool:
    return any(other in name for other in OTHERS) and "loky" not in name
