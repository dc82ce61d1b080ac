#!/usr/bin/env python3
"""Configures and builds a preset, with one line of progress and the full output of compilers."""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time

from progress_line import ProgressLine
from repo import ROOT

PROGRESS = re.compile(r"\[(\d+)/(\d+)\] ")


def configuration(preset: str, definitions: list[str]) -> str:
    """Hash of settings that ninja does not track: presets, definitions, and the commit that release builds show."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).stdout
    shown = commit if preset == "release" else b""
    return hashlib.sha256((ROOT / "CMakePresets.json").read_bytes() + repr(definitions).encode() + shown).hexdigest()


def configure(preset: str, definitions: list[str]) -> bool:
    """Run CMake unless it has run with these settings; whether it succeeded."""
    build = ROOT / "build" / preset
    stamp, key = build / ".configured", configuration(preset, definitions)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == key and (build / "build.ninja").is_file():
        return True
    stamp.unlink(missing_ok=True)
    done = subprocess.run(
        ["cmake", "--preset", preset, *(f"-D{text}" for text in definitions)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout)
        return False
    stamp.write_text(key, encoding="utf-8")
    return True


def build(preset: str, targets: list[str]) -> int:
    """Build with CMake; its exit status."""
    command = ["cmake", "--build", "--preset", preset]
    if targets:
        command += ["--target", *targets]
    begin = time.monotonic()
    line, total = ProgressLine(f"build {preset}"), "0"
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for text in process.stdout or ():
            if match := PROGRESS.match(text):
                line.show(*match.groups())
                total = match[2]
            elif text.strip() not in ("", "ninja: no work to do."):
                line.close()
                print(text, end="", flush=True)
    line.close()
    if process.returncode == 0:
        print(f"build {preset}: {total} steps, {time.monotonic() - begin:.0f} s", flush=True)
    return process.returncode


def main(arguments: list[str] | None = None) -> int:
    """Configure, then build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset", help="name of a preset of CMakePresets.json")
    parser.add_argument("targets", nargs="*", help="targets to build (default: all)")
    parser.add_argument(
        "-D", dest="definitions", metavar="NAME=VALUE", action="append", default=[], help="passed to CMake"
    )
    parser.add_argument("--configure-only", action="store_true", help="do not build")
    options = parser.parse_args(arguments)
    if not configure(options.preset, options.definitions):
        return 1
    if options.configure_only:
        return 0
    return build(options.preset, options.targets)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
