"""scripts/bundle_deps.py: the contents of .deps, and the messages when something is missing."""

from __future__ import annotations

from pathlib import Path

import bundle_deps
import pytest

FILES = (
    "usr/include/fmt/format.h",
    "usr/include/CLI/CLI.hpp",
    "usr/include/nlohmann/json.hpp",
    "usr/include/nlohmann/detail/value_t.hpp",
    "usr/include/msgpack/unpack.hpp",
    "usr/src/googletest/googletest/include/gtest/gtest.h",
    "usr/src/googletest/googletest/src/gtest-all.cc",
    "usr/share/doc/libfmt-dev/copyright",
    "usr/share/doc/libcli11-dev/copyright",
    "usr/share/doc/nlohmann-json3-dev/copyright",
    "usr/share/doc/libmsgpack-cxx-dev/copyright",
    "usr/share/doc/googletest/copyright",
)


VENV = "venv/lib/python3.11/site-packages"
MODULES = (
    f"{VENV}/cloudpickle/__init__.py",
    f"{VENV}/cloudpickle/__pycache__/__init__.cpython-311.pyc",
    f"{VENV}/cloudpickle-3.1.2.dist-info/licenses/LICENSE",
)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Give a system with all packages and a virtual environment; each file contains its own name."""
    for name in FILES + MODULES:
        path = tmp_path / "system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return tmp_path / "system"


def bundle(system: Path, out: Path) -> int:
    """Run the script."""
    return bundle_deps.main(["--system", str(system), "--venv", str(system / "venv"), "--out", str(out)])


def test_headers_sources_and_licences_are_copied(
    system: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory has exactly the files that cmake/dependencies.cmake and tests/conftest.py search for."""
    out = tmp_path / ".deps"
    assert bundle(system, out) == 0
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()) == [
        "googletest/include/gtest/gtest.h",
        "googletest/src/gtest-all.cc",
        "include/CLI/CLI.hpp",
        "include/fmt/format.h",
        "include/msgpack/unpack.hpp",
        "include/nlohmann/detail/value_t.hpp",
        "include/nlohmann/json.hpp",
        "licences/cloudpickle/copyright",
        "licences/libcli11-dev/copyright",
        "licences/libfmt-dev/copyright",
        "licences/libgtest-dev/copyright",
        "licences/libmsgpack-cxx-dev/copyright",
        "licences/nlohmann-json3-dev/copyright",
        "python/cloudpickle/__init__.py",
    ]
    assert (out / "include/fmt/format.h").read_text(encoding="utf-8") == "usr/include/fmt/format.h"
    text = capsys.readouterr().out
    assert f"{out} holds 0.0 MiB" in text
    assert "make gpu" in text


def test_second_run_replaces_the_first(system: Path, tmp_path: Path) -> None:
    """Files that the packages no longer have are removed."""
    out = tmp_path / ".deps"
    assert bundle(system, out) == 0
    (system / "usr/include/nlohmann/detail/value_t.hpp").unlink()
    assert bundle(system, out) == 0
    assert not (out / "include/nlohmann/detail/value_t.hpp").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".deps")] == [".deps"]


@pytest.mark.parametrize(
    ("lost", "package"),
    [
        ("usr/include/fmt/format.h", "libfmt-dev"),
        ("usr/src/googletest/googletest/src/gtest-all.cc", "libgtest-dev"),
        ("usr/share/doc/libcli11-dev/copyright", "libcli11-dev"),
    ],
)
def test_missing_package_is_named_and_old_bundle_kept(
    system: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str, package: str
) -> None:
    """A partial bundle never replaces a complete one."""
    out = tmp_path / ".deps"
    assert bundle(system, out) == 0
    (system / lost).unlink()
    assert bundle(system, out) == 1
    assert f"{system / lost}:1: " in (error := capsys.readouterr().err)
    assert f"install {package}" in error
    assert (out / "include/fmt/format.h").is_file()


@pytest.mark.parametrize("lost", [MODULES[0], MODULES[2]])
def test_missing_module_or_licence_is_reported(
    system: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    """It comes with the tools in .venv."""
    (system / lost).unlink()
    assert bundle(system, tmp_path / ".deps") == 1
    assert "cloudpickle or its licence is missing: run `make setup`" in capsys.readouterr().err
    assert not (tmp_path / ".deps").exists()
