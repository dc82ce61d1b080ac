#!/usr/bin/env python3
"""Runs every fuzzer of a build for some time and prints one line for each."""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from repo import ROOT

SUFFIX = "_fuzzer"
LIBFUZZER = ("-timeout=30", "-rss_limit_mb=3000", "-max_len=600", "-print_final_stats=1", "-verbosity=1")
SANITIZERS = {"ASAN_OPTIONS": "quarantine_size_mb=32", "UBSAN_OPTIONS": "print_stacktrace=1"}
TAIL_LINES = 40


def numbers(*values: int) -> bytes:
    """Encode 32-bit numbers as the fuzzers read them."""
    return struct.pack(f"<{len(values)}I", *values)


def text(value: bytes) -> bytes:
    """Encode a short MessagePack string."""
    return bytes([0xA0 + len(value)]) + value


def serialized(*arrays: tuple[bytes, bytes, int, int]) -> bytes:
    """Encode a header of serialized arrays, each given as name, type, size and offset; numbers must be below 128."""
    header = b"\x83" + text(b"order") + text(b"little") + text(b"alignment") + b"\x40" + text(b"arrays")
    header += bytes([0x90 + len(arrays)])
    for name, dtype, size, offset in arrays:
        header += b"\x85" + text(b"name") + text(name) + text(b"dtype") + text(dtype)
        header += text(b"shape") + bytes([0x91, size]) + text(b"offset") + bytes([offset])
        header += text(b"bytes") + bytes([size * (8 if dtype.endswith(b"64") else 1)])
    return header


# Inputs that pass the first checks, from which the fuzzers start.
SEEDS: dict[str, list[bytes]] = {
    # A struct, lists, a map, a tuple, a batch of one task, and values for descriptions.
    "codec": [
        bytes([0, 0x94]) + text(b"ab") + b"\x81" + text(b"k") + b"\x91\x92\x91\x05\x92\x01\x02\xc4\x00\x92\xc3\x07",
        bytes([1, 0x92, 0x92, 0xC0, 0x92, 1, 2, 0x92, 0x91, 0xC0, 0x92, 1, 2]),
        bytes([2, 0x82, 1, 0x91]) + text(b"x") + bytes([0xFF, 0x90]),
        bytes([3, 0x93, 0xCA, 0x3F, 0xC0, 0, 0, 0xC4, 2, 1, 2, 0xCE, 1, 2, 3, 4]),
        bytes([4]) + numbers(1, 1) + numbers(7, 0, 3, 2, 0, 0) + b"\xa1x" + bytes(6),
        bytes([203, 0x9A]) + bytes(range(10)) + bytes([0xDC, 0, 1, 0xD4, 1, 0]),
    ],
    "handle": [b"queue:3:0:17", b"rlock:4294967295:18446744073709551615:1", b"condition:1:64", b"barrier:-1:0:0"],
    "npy": [
        bytes([0]) + b"\x93NUMPY\x01\0\x41\0{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }      \n123456",
        *(
            bytes([255]) + b"{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (descr, order, shape)
            for descr in (b"<f2", b"<c16", b"|b1", b">i8", b"<f4")
            for order, shape in ((b"True", b"2, 3"), (b"False", b"30, 41"), (b"False", b""), (b"True", b"0, 9,"))
        ),
    ],
    "protocol": [bytes([0]) + b"DRVR" + bytes(60), *(bytes([64 + kind]) + b"\x01" * 40 for kind in range(30))],
    # A few slots, 16 KiB and two flights; puts of several sizes, receive and done, get, recovery, a corrupted word.
    "queue": [
        numbers(2, 16, 2) + bytes([0, 2, 7, 0, 5, 7, 3, 4, 0, 2]),
        numbers(0, 4, 0) + bytes([0, 3, 1, 3, 4, 1, 2, 6]) + numbers(0),
        numbers(3, 8, 1) + bytes([5]) + numbers(3000) + bytes([1, 2, 0, 7, 1, 2]),
        numbers(1, 8, 1) + bytes([0, 1, 1, 7]) + numbers(7, 384) + bytes(range(8)) + bytes([2]),
    ],
    "pool": [
        numbers(63) + bytes([0]) + numbers(500, 0) + bytes([1]) + numbers(3000, 1) + bytes([3]) + numbers(0),
        numbers(7) + bytes([0]) + numbers(256, 0) + bytes([6]) + numbers(0, 0, 0) + bytes([7]) + numbers(7, 64, 1, 2),
    ],
    "serialize": [
        bytes([0]) + b"\x89DROVER\n" + numbers(1, 0),
        *(
            bytes([dress]) + serialized(*arrays)
            for dress in (64, 255)
            for arrays in (
                (),
                ((b"", b"uint8", 3, 0),),
                ((b"a", b"float64", 8, 0), (b"b", b"complex64", 0, 64), (b"c", b"boolean", 9, 64)),
            )
        ),
    ],
    "sync": [bytes([0, 0, 0, 1, 1, 0, 1, 1, 2, 0, 2, 1, 3, 0, 3, 3]), bytes([5, 0, 5, 2, 6, 1, 7, 0]) + numbers(0)],
    "table": [
        numbers(0) + bytes([0, 1, 1]) + numbers(4, 8, 2, 0, 0, 0) + numbers(1) + bytes([2, 1]) + numbers(0),
        numbers(0) + bytes([0, 2, 1]) + numbers(0, 0, 0, 0, 0, 0) + numbers(0) + bytes([4]),
    ],
}


@dataclass(frozen=True)
class Outcome:
    """How one fuzzer ended."""

    name: str
    is_right: bool
    runs: int
    coverage: int
    text: str


def short_name(program: Path) -> str:
    """The name of a fuzzer without its suffix."""
    return program.name.removesuffix(SUFFIX)


def write_seeds(folder: Path, name: str) -> None:
    """Add the seeds of a fuzzer to its corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS.get(name, [])):
        (folder / f"seed-{number}").write_bytes(seed)


def last_number(pattern: str, text: str) -> int:
    """The last number that a pattern finds, or 0."""
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def run_fuzzer(program: Path, build: Path, seconds: int) -> Outcome:
    """Run one fuzzer; its corpus and its findings stay in the build directory."""
    name = short_name(program)
    corpus, findings = build / "corpus" / name, build / "findings"
    write_seeds(corpus, name)
    findings.mkdir(parents=True, exist_ok=True)
    command = [
        str(program),
        *LIBFUZZER,
        f"-max_total_time={seconds}",
        f"-artifact_prefix={findings}/{name}-",
        str(corpus),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, **SANITIZERS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    runs = last_number(r"stat::number_of_executed_units: +(\d+)", done.stdout)
    is_right = done.returncode == 0 and runs > 0
    tail = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
    return Outcome(name, is_right, runs, last_number(r"cov: (\d+)", done.stdout), "" if is_right else tail)


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzers and print how each ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5, help="seconds for each fuzzer (default: 5)")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this fuzzer; repeatable")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "fuzz", help="build directory of the fuzzers")
    options = parser.parse_args(arguments)
    found = sorted(path for path in (options.build / "fuzz").glob(f"*{SUFFIX}") if os.access(path, os.X_OK))
    programs = [path for path in found if options.only is None or short_name(path) in options.only]
    if not programs:
        print(f"fuzz: {options.build}/fuzz has no fuzzer: run `make test-fuzz`, which builds them", file=sys.stderr)
        return 2
    is_right = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for outcome in pool.map(lambda path: run_fuzzer(path, options.build, options.seconds), programs):
            state = "ok" if outcome.is_right else "FAILED"
            if not outcome.is_right:
                print(outcome.text)
            print(f"fuzz {outcome.name:<10} {state:<6} {outcome.runs} runs, coverage {outcome.coverage}", flush=True)
            is_right = is_right and outcome.is_right
    if not is_right:
        print(f"fuzz: failing inputs are in {options.build / 'findings'}: pass one to its fuzzer to reproduce")
    return 0 if is_right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
