"""Installs the wheel in an environment with only cloudpickle, and uses it there."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import cloudpickle
import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "build" / "wheel"
SOURCES = ROOT / "python" / "drover"
COMPILED = re.compile(r"drover/_core\.[\w.-]+\.so")
TIMEOUT_S = 300  # ends a run that hangs

PROGRAM = """
import drover

def square(inbox, outbox):
    for number in iter(inbox.get, None):
        outbox.put(number * number)

inbox, outbox = drover.Queue(), drover.Queue()
worker = drover.Process(target=square, args=(inbox, outbox))
worker.start()
for number in [1, 2, 3, None]:
    inbox.put(number)
print([outbox.get() for _ in range(3)])
worker.join()
print(worker.exitcode, drover.__version__)
"""


def project_version() -> str:
    """The version in CMakeLists.txt."""
    match = re.search(r"project\(drover VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert match is not None
    return match[1]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program that must succeed, in a directory from which the tree cannot be imported; its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DROVER_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    """Give the wheel that `make wheel` built."""
    found = sorted(WHEELS.glob(f"drover-{project_version()}-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip(f"{WHEELS} has no wheel: run `make wheel`")
    if found[-1].stat().st_mtime < max(path.stat().st_mtime for path in SOURCES.glob("*.py*")):
        pytest.skip(f"{found[-1]} is older than the modules in {SOURCES}: run `make wheel`")
    return found[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a virtual environment with the wheel and its dependencies."""
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        venv / "bin/python",
        "install",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=venv,
    )
    packages = run(venv / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=venv)
    shutil.copytree(Path(cloudpickle.__file__).parent, Path(packages.strip()) / "cloudpickle")
    return venv


def test_wheel_contains_the_package_and_nothing_else(wheel: Path) -> None:
    """Every module of the tree, the compiled half, the executable tool, and the metadata."""
    with zipfile.ZipFile(wheel) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    inside = {name for name in modes if not name.startswith(f"drover-{project_version()}.dist-info/")}
    compiled = {name for name in inside if COMPILED.fullmatch(name)}
    assert len(compiled) == 1, inside
    sources = {f"drover/{path.name}" for path in SOURCES.iterdir() if path.suffix in {".py", ".pyi", ".typed"}}
    assert inside - compiled == sources | {"drover/bin/drover"}
    assert modes["drover/bin/drover"] & stat.S_IXUSR


def test_metadata_has_the_dependencies(wheel: Path) -> None:
    """Cloudpickle alone, and the oldest interpreter."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"drover-{project_version()}.dist-info/METADATA").decode()
    metadata = Parser().parsestr(text)
    assert metadata["Version"] == project_version()
    assert metadata["Requires-Python"] == ">=3.10"
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [re.match(r"[\w-]+", line)[0] for line in needed] == ["cloudpickle"]


def test_processes_and_queues_work(installed: Path, tmp_path: Path) -> None:
    """The package starts its own tool as the keeper, and a worker that imports it."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    text = run(installed / "bin/python", "program.py", cwd=tmp_path)
    assert text == f"[1, 4, 9]\n0 {project_version()}\n"


def test_tool_is_installed_under_both_names(installed: Path, tmp_path: Path) -> None:
    """As a program and as a module."""
    for command in ([installed / "bin/drover"], [installed / "bin/python", "-m", "drover"]):
        assert project_version() in run(*command, "--version", cwd=tmp_path)
        assert "devices" in run(*command, "--help", cwd=tmp_path)


def test_its_programs_need_only_libraries_of_every_system(installed: Path, tmp_path: Path) -> None:
    """No driver, nothing of the build machine, and no search path for libraries."""
    package = installed / Path(sysconfig.get_path("platlib")).relative_to(sys.prefix) / "drover"
    for program in (package / "bin/drover", next(package.glob("_core*.so"))):
        text = run("readelf", "-d", program, cwd=tmp_path)
        needed = {re.sub(r"\.so.*", "", name) for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text)}
        assert needed <= {"libc", "libm", "libstdc++", "libgcc_s", "libpthread", "libdl", "ld-linux-x86-64"}, needed
        assert "PATH)" not in text
