"""Shared code of the benchmarks in Python: samples, tables with ratios, options."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One figure, with the fields of the benchmarks in C++."""

    workload: str
    contender: str
    metric: str
    unit: str
    median: float
    p99: float
    n: int


def options(text: str) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--smoke", action="store_true", help="one short round to check that everything runs")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--only", default="", help="run contenders and workloads whose names contain this")
    return parser.parse_args()


def row(workload: str, contender: str, metric: str, unit: str, samples: list[float]) -> Row:
    """Compute a figure from samples; the bad end of rates is the low one."""
    ordered = sorted(samples, reverse=unit.endswith("/s"))
    bad = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
    return Row(workload, contender, metric, unit, statistics.median(samples), bad, len(samples))


def timed(call: Callable[[], object]) -> float:
    """Time a call in seconds."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def progress(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def report(rows: Iterable[Row], file: Path | None) -> None:
    """Print a table for each workload, with the factor by which drover is better than each contender."""
    rows = list(rows)
    for key in dict.fromkeys((one.workload, one.metric, one.unit) for one in rows):
        same = [one for one in rows if (one.workload, one.metric, one.unit) == key]
        own = next((one for one in same if one.contender == "drover"), None)
        print(f"\n{key[0]}: {key[1]} ({key[2]})")
        for one in same:
            print(f"  {one.contender:34} {one.median:14.3f}  bad end {one.p99:14.3f}  {_ratio(own, one)}")
    if file is not None:
        file.write_text(json.dumps([asdict(one) for one in rows], indent=1), encoding="utf-8")


def _ratio(own: Row | None, other: Row) -> str:
    if own is None or own is other or not own.median or not other.median:
        return ""
    better = own.median / other.median if own.unit.endswith("/s") else other.median / own.median
    return f"drover is {better:.2f}x as good"
