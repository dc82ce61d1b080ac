"""Options of pools and calls that have wrong types or values."""

from __future__ import annotations

from typing import Any

import drover
import pytest


@pytest.mark.parametrize(
    "options",
    [
        {"processes": 1.5},
        {"threads": "a"},
        {"affinity": "x"},
        {"memory_budget": "lots"},
        {"name": 5},
        {"output": 5},
        {"start_limit": "x"},
        {"retry": "a"},
        {"stall_report_after": -3.0},
        {"idle_limit": -1.0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_with_wrong_values_are_named(options: dict[str, Any]) -> None:
    """With the value, and no names of the extension."""
    ((name, value),) = options.items()
    with pytest.raises((TypeError, ValueError)) as caught:
        drover.Pool(**options)
    assert f"{name}={value!r}" in str(caught.value)
    assert "_core" not in str(caught.value)


def test_options_of_calls_with_wrong_values_are_named() -> None:
    """As those of the pool."""
    with drover.Pool(1) as pool, pytest.raises(TypeError, match="timeout='a'"):
        pool.options(timeout="a")  # type: ignore[arg-type]
