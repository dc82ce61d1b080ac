#!/usr/bin/env python3
"""Runs every gate that needs no running program, and prints one line for each."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from change import EVERYTHING, base_of, changed_since
from repo import CPP_FILES, ROOT, files_of
from tidy import Cache, run_tidy

Result = tuple[bool, str]
PLAIN = ROOT / "build" / "plain"  # each source by itself, as clang-tidy wants it


class ToolMissingError(Exception):
    """A program that a gate needs is not installed."""


def find_tool(name: str) -> str:
    """The program in .venv, whose version is pinned, or else in PATH."""
    pinned = ROOT / ".venv" / "bin" / name
    found = str(pinned) if os.access(pinned, os.X_OK) else shutil.which(name)
    if found is None:
        raise ToolMissingError(f"{name} was not found: run `make setup`")
    return found


def run(*command: str) -> Result:
    """Run a program in the root of the tree; whether it succeeded, and its output."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout.strip()


def script(name: str, *arguments: str) -> Result:
    """Run one of the checks in this directory."""
    return run(sys.executable, str(ROOT / "scripts" / name), *arguments)


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    build: Path
    fix: bool
    base: str


def cpp_format(settings: Settings) -> Result:
    """C++ is formatted by clang-format."""
    names = [name for name in files_of(ROOT) if Path(name).suffix in CPP_FILES]
    tool = find_tool("clang-format")
    if settings.fix:
        return run(tool, "-i", *names)
    ok, text = run(tool, "--dry-run", "-Werror", *names)
    wrong = sorted({line.split(":")[0] for line in text.splitlines() if "clang-format-violations" in line})
    return ok, "\n".join(f"{name}:1: is not formatted: run `make format`" for name in wrong) or text


def python_format(settings: Settings) -> Result:
    """Python is formatted by ruff."""
    mode = [] if settings.fix else ["--check"]
    return run(find_tool("ruff"), "format", *mode, ".")


def ruff(settings: Settings) -> Result:
    """Python passes ruff's checks."""
    mode = ["--fix"] if settings.fix else []
    return run(find_tool("ruff"), "check", "--quiet", *mode, ".")


def shell(_: Settings) -> Result:
    """Shell scripts parse."""
    names = [name for name in files_of(ROOT) if name.endswith(".sh") or name == ".ci/run"]
    results = [run("bash", "-n", name) for name in names]
    return all(ok for ok, _ in results), "\n".join(text for _, text in results if text)


def layers(_: Settings) -> Result:
    """Includes respect the layers."""
    return script("check_layers.py")


def names(_: Settings) -> Result:
    """No C++ type of the library, its tests and its tools is defined twice under one name."""
    return script("check_names.py")


def headers(_: Settings) -> Result:
    """Every public header compiles by itself; repeated only after a header has changed."""
    names = [name for name in files_of(ROOT) if name.startswith("include/")]
    digest = hashlib.sha256(os.environ.get("CXX", "").encode())
    for name in names:
        digest.update(f"\0{name}\0".encode() + (ROOT / name).read_bytes())
    cache = Cache(ROOT / "build" / "lint-cache")
    if cache.is_clean("include", digest.hexdigest()):
        return True, "unchanged"
    ok, text = script("check_layers.py", "--compile")
    if ok:
        cache.remember("include", digest.hexdigest())
    return ok, text


def sizes(_: Settings) -> Result:
    """Files, classes and functions keep their budgets, and there is enough test code."""
    return script("check_sizes.py")


def docs(_: Settings) -> Result:
    """The pages agree with the tree."""
    return script("check_docs.py")


def commits(settings: Settings) -> Result:
    """Commits since the base have an imperative subject of at most 72 letters."""
    return script("check_commits.py", "--base", settings.base)


def doxygen(_: Settings) -> Result:
    """Every public name is documented."""
    (ROOT / "build").mkdir(exist_ok=True)
    ok, text = run(find_tool("doxygen"), "docs/Doxyfile")
    return ok, "" if ok else text


def tidy(settings: Settings) -> Result:
    """C++ passes clang-tidy: sources that the change since the base reaches."""
    tool = find_tool("clang-tidy")
    if settings.build == PLAIN:
        ok, text = script("build.py", "plain", "--configure-only")
        if not ok:
            return ok, text
    if not (settings.build / "compile_commands.json").is_file():
        return False, f"{settings.build}/compile_commands.json is missing: configure that build first"
    base = base_of(ROOT, settings.base)
    return run_tidy(ROOT, settings.build, tool, changed_since(ROOT, base) if base else None)


# Quick gates come first.
GATES: dict[str, Callable[[Settings], Result]] = {
    "format": cpp_format,
    "ruff-format": python_format,
    "ruff": ruff,
    "shell": shell,
    "layers": layers,
    "names": names,
    "sizes": sizes,
    "docs": docs,
    "commits": commits,
    "doxygen": doxygen,
    "headers": headers,
    "tidy": tidy,
}
FIXERS = ("format", "ruff", "ruff-format")


def pass_gate(name: str, settings: Settings) -> bool:
    """Run one gate and print its line, after its findings if it failed."""
    begin = time.monotonic()
    try:
        ok, text = GATES[name](settings)
    except (ToolMissingError, OSError, subprocess.CalledProcessError) as error:
        ok, text = False, str(error)
    seconds = time.monotonic() - begin
    if not ok:
        print(text)
    note = f"  {text.splitlines()[-1]}" if ok and text else ""
    print(f"lint {name:<12} {'ok' if ok else 'FAILED':<6} {seconds:6.1f} s{note}", flush=True)
    return ok


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen gates."""
    gates = "; ".join(f"{name}: {(gate.__doc__ or '').rstrip('.')}" for name, gate in GATES.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=gates)
    parser.add_argument("--only", metavar="NAME", action="append", choices=GATES, help="only this gate; repeatable")
    parser.add_argument(
        "--fix", action="store_true", help="run only clang-format and ruff, and let them rewrite files"
    )
    parser.add_argument("--build", type=Path, default=PLAIN, help="build directory for clang-tidy")
    parser.add_argument(
        "--base",
        default=EVERYTHING,
        help="check commits since this one, and by clang-tidy what they reach; empty: since leaving the main branch",
    )
    options = parser.parse_args(arguments)
    settings = Settings(build=options.build.resolve(), fix=options.fix, base=options.base)
    chosen = options.only or (FIXERS if options.fix else tuple(GATES))
    passed = [pass_gate(name, settings) for name in chosen]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
