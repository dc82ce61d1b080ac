"""Installs the build, builds a foreign program against it, and checks the dependencies of both."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("DROVER_BUILD_DIR", "build/dev")
VENDOR_LIBRARIES = ("libcuda", "libcudart", "libnvidia", "libnvrtc")


def run(*command: str | Path, **environment: str) -> str:
    """Run a program that must succeed, with additional variables; its output."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def project_version() -> str:
    """The version in CMakeLists.txt."""
    match = re.search(r"project\(drover VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert match is not None
    return match[1]


def libraries_of(program: Path) -> list[str]:
    """The direct and indirect shared libraries that are loaded before `main`."""
    direct = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", program))
    indirect = re.findall(r"^\s*(\S+)", run("ldd", program), re.MULTILINE)
    assert direct, f"{program} is not dynamically linked, so this test proves nothing"
    return [*direct, *indirect]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the build once."""
    if not (BUILD / "cmake_install.cmake").is_file():
        pytest.fail(f"{BUILD} is not a build directory: run `make build`, or set DROVER_BUILD_DIR")
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def consumer(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the consumer's program once."""
    folder = tmp_path_factory.mktemp("consumer")
    source = ROOT / "tests" / "install" / "consumer"
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder)
    return folder / "consumer"


def test_program_against_the_installed_package_runs(consumer: Path) -> None:
    """It finds the package, links, and lists the devices of the chosen backend."""
    text = run(consumer, DROVER_BACKEND="host", DROVER_HOST_DEVICES="2")
    assert text == f"{project_version()}\nhost:0\nhost:1\n"


def test_installed_tool_runs(prefix: Path) -> None:
    """It has the same version, and lists the same devices."""
    assert project_version() in run(prefix / "bin" / "drover", "--version")
    assert "host:0" in run(prefix / "bin" / "drover", "devices", DROVER_BACKEND="host")


def test_neither_program_needs_a_driver_to_start(prefix: Path, consumer: Path) -> None:
    """NVIDIA's libraries are only loaded at run time."""
    for program in (prefix / "bin" / "drover", consumer):
        needed = libraries_of(program)
        assert not [name for name in needed if Path(name).name.startswith(VENDOR_LIBRARIES)], needed


def test_only_public_headers_are_installed(prefix: Path) -> None:
    """The include directory has the files of the tree and includes no dependency."""
    installed = {path.relative_to(prefix).as_posix() for path in (prefix / "include").rglob("*") if path.is_file()}
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "include").rglob("*") if path.is_file()}
    assert installed == ours
    for name in installed:
        text = (prefix / name).read_text(encoding="utf-8")
        assert not re.search(r"#\s*include\s*[<\"](fmt|CLI|nlohmann|msgpack|spdlog)/", text), name


def test_nothing_of_the_python_package_is_installed(prefix: Path) -> None:
    """The wheel installs it, although the build has it."""
    assert any((BUILD / "python" / "drover").glob("_core*.so"))
    assert not [path for path in prefix.rglob("*") if path.name.startswith("_core") or path.suffix == ".py"]


def test_package_files_name_no_path_of_the_build(prefix: Path) -> None:
    """The package still works after it was moved to another machine."""
    files = [*prefix.rglob("*.cmake")]
    assert files
    for path in files:
        assert str(ROOT) not in path.read_text(encoding="utf-8"), path
