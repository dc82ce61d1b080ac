#!/usr/bin/env python3
"""Fills .deps/ from the installed packages and .venv, for machines without a network."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from repo import ROOT


@dataclass(frozen=True)
class Piece:
    """A directory to copy, and the package that installs it."""

    package: str
    source: str  # below the system's root
    target: str  # below .deps
    proof: str  # a file that it must contain


PIECES = (
    Piece("libfmt-dev", "usr/include/fmt", "include/fmt", "format.h"),
    Piece("libcli11-dev", "usr/include/CLI", "include/CLI", "CLI.hpp"),
    Piece("nlohmann-json3-dev", "usr/include/nlohmann", "include/nlohmann", "json.hpp"),
    Piece("libmsgpack-cxx-dev", "usr/include/msgpack", "include/msgpack", "unpack.hpp"),
    Piece("libgtest-dev", "usr/src/googletest/googletest/include", "googletest/include", "gtest/gtest.h"),
    Piece("libgtest-dev", "usr/src/googletest/googletest/src", "googletest/src", "gtest-all.cc"),
)
# Dependencies of the Python package, copied from .venv: pure Python, and thus the same for every interpreter.
MODULES = ("cloudpickle",)
# The licence of GoogleTest's sources is in the package that holds them.
LICENCES = {"libgtest-dev": ("googletest", "libgtest-dev")}


def find_licence(system: Path, package: str) -> Path | None:
    """The copyright file of a package."""
    candidates = (system / "usr/share/doc" / name / "copyright" for name in LICENCES.get(package, (package,)))
    return next((path for path in candidates if path.is_file()), None)


def find_module(venv: Path, module: str) -> tuple[Path | None, Path | None]:
    """A module's directory in a virtual environment, and its licence."""
    for packages in sorted(venv.glob("lib/python3*/site-packages")):
        licence = next(packages.glob(f"{module}-*.dist-info/**/LICENSE*"), None)
        if (packages / module / "__init__.py").is_file() and licence is not None:
            return packages / module, licence
    return None, None


def problems(system: Path, venv: Path) -> list[str]:
    """A line for each thing that is not installed."""
    found = [
        f"{venv}:1: {module} or its licence is missing: run `make setup`"
        for module in MODULES
        if find_module(venv, module)[0] is None
    ]
    for piece in PIECES:
        path = system / piece.source / piece.proof
        if not path.is_file():
            found.append(f"{path}:1: is missing: install {piece.package} (`make setup` does it)")
    for package in dict.fromkeys(piece.package for piece in PIECES):
        if find_licence(system, package) is None:
            where = system / "usr/share/doc" / package / "copyright"
            found.append(f"{where}:1: the licence of {package} is missing: install {package} with its documentation")
    return found


def fill_modules(venv: Path, out: Path) -> None:
    """Copy the Python modules without their bytecode."""
    for module in MODULES:
        folder, licence = find_module(venv, module)
        if folder is not None and licence is not None:
            shutil.copytree(folder, out / "python" / module, ignore=shutil.ignore_patterns("__pycache__"))
            (out / "licences" / module).mkdir(parents=True)
            shutil.copyfile(licence, out / "licences" / module / "copyright")


def fill(system: Path, venv: Path, out: Path) -> None:
    """Copy everything next to `out`, then rename it: a partial copy never replaces a good one."""
    fresh = out.with_name(out.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for piece in PIECES:
        shutil.copytree(system / piece.source, fresh / piece.target)
    for package in {piece.package for piece in PIECES}:
        licence = find_licence(system, package)
        if licence is not None:
            target = fresh / "licences" / package / "copyright"
            target.parent.mkdir(parents=True)
            shutil.copyfile(licence, target)
    fill_modules(venv, fresh)
    shutil.rmtree(out, ignore_errors=True)
    fresh.rename(out)


def size_of(folder: Path) -> int:
    """Total bytes of the files in a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(arguments: list[str] | None = None) -> int:
    """Fill the directory and print how to use it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".deps", help="the directory to fill (default: .deps)")
    parser.add_argument("--system", type=Path, default=Path("/"), help="root of the system to copy from (default: /)")
    parser.add_argument(
        "--venv", type=Path, default=ROOT / ".venv", help="environment with the Python modules (default: .venv)"
    )
    options = parser.parse_args(arguments)
    wrong = problems(options.system, options.venv)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    fill(options.system, options.venv, options.out)
    print(f"bundle: {options.out} holds {size_of(options.out) / 2**20:.1f} MiB of headers, sources and licences")
    print("bundle: copy the tree with this directory to the other machine, where CMake finds it;")
    print("bundle: `make gpu` and `cmake --preset release` then need neither a network nor packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
