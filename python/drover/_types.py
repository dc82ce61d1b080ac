"""Types for annotations: variables with defaults, and the options of pools."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict

__all__ = ["FloatCode", "IntegerCode", "Item", "Parameters", "Placement", "PoolOptions", "Result"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Item = TypeVar("Item", default=Any)
    Result = TypeVar("Result", default=Any)
else:  # defaults came with Python 3.13
    Item = typing.TypeVar("Item")
    Result = typing.TypeVar("Result")
Parameters = ParamSpec("Parameters")
# Codes of ctypes types.
IntegerCode = Literal["b", "B", "h", "H", "i", "I", "l", "L", "q", "Q"]
FloatCode = Literal["f", "d"]


class Placement(TypedDict, total=False):
    """The placement options of a pool; see docs/placement.md."""

    per_device: int
    exclusive: bool
    sees_all: bool
    memory_budget: int
    threads: int
    affinity: bool
    mps: bool
    mps_percentage: int


class PoolOptions(Placement, total=False):
    """The options of `drover.Pool` beyond those of `multiprocessing.Pool`."""

    devices: str | int | Iterable[Any] | None
    retry: int | None
    name: str
    output: str
    start_limit: float
    idle_limit: float
    stall_report_after: float
