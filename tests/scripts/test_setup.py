"""scripts/setup.sh: what it installs, with which rights, and when it does nothing."""

from __future__ import annotations

import hashlib
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from small_tree import SCRIPTS

PACKAGES = "g++ cmake ninja-build git libfmt-dev libcli11-dev nlohmann-json3-dev libmsgpack-cxx-dev libgtest-dev"
TOOLS = "doxygen gdb"
PEERS = "libboost-dev libzmq5"
REAL_PROGRAMS = ("bash", "cat", "dirname", "env", "mkdir", "rm", "sha256sum")


class Machine:
    """A fake machine: a tree, and a PATH whose programs record their calls."""

    def __init__(self, root: Path) -> None:
        """Start with nothing installed and an ordinary user without sudo."""
        self.tree, self.bin = root / "tree", root / "bin"
        self.log, self.installed = root / "log", root / "installed"
        (self.tree / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        self.installed.write_text("", encoding="utf-8")
        shutil.copy(SCRIPTS / "setup.sh", self.tree / "scripts")
        (self.tree / "requirements-build.txt").write_text("needed==1\n", encoding="utf-8")
        (self.tree / "requirements-dev.txt").write_text("tool==1\n", encoding="utf-8")
        for name in REAL_PROGRAMS:
            (self.bin / name).symlink_to(shutil.which(name) or name)
        grep = shutil.which("grep")
        self.program("dpkg-query", f'{grep} -qx -- "$4" {self.installed} && printf installed')
        self.program("id", "echo 1000")
        self.program("apt-get", f'echo "apt-get $* [$DEBIAN_FRONTEND]" >> {self.log}')
        self.python_with_venv()

    def program(self, name: str, text: str) -> None:
        """Put a program on the PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def python_with_venv(self) -> None:
        """Put a python3 on the PATH that creates a venv whose pip records its calls."""
        inner = f'#!/bin/sh\\necho "python $*" >> {self.log}\\n'
        self.program(
            "python3",
            'case "$*" in\n'
            "  --version) echo Python 3.11.0 ;;\n"
            f'  "-m venv "*) mkdir -p "$3/bin"; printf \'{inner}\' > "$3/bin/python"; '
            f'{shutil.which("chmod")} +x "$3/bin/python" ;;\n'
            "  *) exit 0 ;;\nesac",
        )

    def has(self, packages: str) -> None:
        """Mark packages as installed."""
        self.installed.write_text("\n".join(packages.split()) + "\n", encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run setup.sh."""
        command = [str(self.bin / "bash"), str(self.tree / "scripts" / "setup.sh"), *arguments]
        return subprocess.run(command, env={"PATH": str(self.bin)}, capture_output=True, text=True, check=False)

    def calls(self) -> list[str]:
        """The calls of apt-get and pip so far."""
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Give a bare machine."""
    return Machine(tmp_path)


def test_root_installs_missing_packages(machine: Machine) -> None:
    """Only those, without questions, and without fetching package lists that work."""
    machine.program("id", "echo 0")
    machine.has("g++ cmake ninja-build git libfmt-dev nlohmann-json3-dev libmsgpack-cxx-dev")
    assert machine.run("--no-venv").returncode == 0
    assert machine.calls() == [
        "apt-get install -y --no-install-recommends libcli11-dev libgtest-dev [noninteractive]"
    ]


def test_user_with_passwordless_sudo_installs_through_it(machine: Machine) -> None:
    """Sudo never prompts."""
    machine.program("sudo", f'echo "sudo $1" >> {machine.log}; shift; exec "$@"')
    machine.program("true", "exit 0")
    machine.has(PACKAGES.replace(" libgtest-dev", ""))
    assert machine.run("--no-venv").returncode == 0
    assert machine.calls() == [
        "sudo -n",
        "sudo -n",
        "apt-get install -y --no-install-recommends libgtest-dev [noninteractive]",
    ]


@pytest.mark.parametrize("sudo", [None, "exit 1"], ids=["absent", "refusing"])
def test_user_without_rights_gets_the_command_to_run(machine: Machine, sudo: str | None) -> None:
    """Nothing is installed, and the exit status is 1."""
    if sudo is not None:
        machine.program("sudo", sudo)
    done = machine.run("--no-venv")
    assert done.returncode == 1
    assert f"  sudo apt-get install -y --no-install-recommends {PACKAGES}\n" in done.stderr
    assert machine.calls() == []


def test_lists_are_fetched_only_after_a_failure(machine: Machine) -> None:
    """The first install fails, as on a fresh machine; after an update it succeeds."""
    machine.program("id", "echo 0")
    updated = machine.log.with_name("updated")
    machine.program(
        "apt-get", f'echo "apt-get $1" >> {machine.log}; [ "$1" = update ] && : > {updated}; [ -e {updated} ]'
    )
    machine.has(PACKAGES.replace(" libgtest-dev", ""))
    assert machine.run("--no-venv").returncode == 0
    assert machine.calls() == ["apt-get install", "apt-get update", "apt-get install"]


def test_install_that_fails_twice_is_an_error(machine: Machine) -> None:
    """The message has the command to run by hand."""
    machine.program("id", "echo 0")
    machine.program("apt-get", '[ "$1" = update ]')
    machine.has(PACKAGES.replace(" libgtest-dev", ""))
    done = machine.run("--no-venv")
    assert done.returncode == 1
    assert "failed to install packages: see the lines above, then run: apt-get install" in done.stderr


def test_nothing_is_done_if_everything_is_present(machine: Machine) -> None:
    """That needs neither a network nor rights."""
    machine.has(PACKAGES)
    done = machine.run("--no-venv")
    assert (done.returncode, done.stdout, done.stderr, machine.calls()) == (0, "", "", [])


def test_programs_from_elsewhere_and_the_directory_deps_count_as_present(machine: Machine) -> None:
    """A machine with its own CMake and a bundle needs no packages."""
    for name in ("g++", "cmake", "ninja", "git"):
        machine.program(name, "exit 0")
    for name in (
        "include/fmt/format.h",
        "include/CLI/CLI.hpp",
        "include/nlohmann/json.hpp",
        "include/msgpack/unpack.hpp",
    ):
        (machine.tree / ".deps" / name).parent.mkdir(parents=True)
        (machine.tree / ".deps" / name).touch()
    done = machine.run("--no-venv")
    assert done.returncode == 1
    assert "apt-get install -y --no-install-recommends libgtest-dev\n" in done.stderr
    (machine.tree / ".deps/googletest/src").mkdir(parents=True)
    (machine.tree / ".deps/googletest/src/gtest-all.cc").touch()
    assert machine.run("--no-venv").returncode == 0


def test_offline_ok_prints_what_it_skipped_and_succeeds(machine: Machine) -> None:
    """It runs nothing that needs a network."""
    machine.program("id", "echo 0")
    machine.has(f"{PACKAGES} {TOOLS}".replace("libcli11-dev ", ""))
    done = machine.run("--offline-ok")
    assert done.returncode == 0
    assert "setup: skipped (--offline-ok): packages libcli11-dev\n" in done.stdout
    assert "setup: skipped (--offline-ok): the Python tools in .venv" in done.stdout
    assert machine.calls() == []


def test_building_needs_no_tools_for_linting_and_stacks(machine: Machine) -> None:
    """A demo need not install doxygen."""
    machine.has(PACKAGES)
    assert machine.run("--no-venv").returncode == 0
    assert f"apt-get install -y --no-install-recommends {TOOLS}\n" in machine.run().stderr


def test_option_with_adds_a_package(machine: Machine) -> None:
    """As `make test-clang` uses it."""
    machine.has(PACKAGES)
    done = machine.run("--no-venv", "--with", "clang-16")
    assert "apt-get install -y --no-install-recommends clang-16\n" in done.stderr
    machine.program("clang++-16", "exit 0")
    assert machine.run("--no-venv", "--with", "clang-16").returncode == 0


def test_peers_of_benchmarks_are_installed_only_for_benchmarks(machine: Machine) -> None:
    """Tests and builds need none of them."""
    machine.program("id", "echo 0")
    machine.has(PACKAGES)
    assert machine.run("--no-venv").returncode == 0
    assert machine.calls() == []
    assert machine.run("--no-venv", "--benchmarks").returncode == 0
    assert machine.calls() == [f"apt-get install -y --no-install-recommends {PEERS} [noninteractive]"]
    machine.has(f"{PACKAGES} {PEERS}")
    assert machine.run("--no-venv", "--benchmarks").returncode == 0
    assert len(machine.calls()) == 1


@pytest.mark.parametrize("user", [0, 1000], ids=["no network", "no rights"])
def test_peers_of_benchmarks_may_be_missing(machine: Machine, user: int) -> None:
    """A benchmark without one contender is better than none."""
    machine.program("id", f"echo {user}")
    machine.program("apt-get", "exit 1")
    machine.has(f"{PACKAGES} libzmq5")
    done = machine.run("--no-venv", "--benchmarks")
    assert done.returncode == 0
    assert "setup: continuing without libboost-dev: benchmarks skip the contenders that need them\n" in done.stdout
    machine.has(PEERS)
    done = machine.run("--no-venv", "--benchmarks")
    assert done.returncode == 1
    assert "continuing without" not in done.stdout


def test_machine_without_apt_gets_the_list_of_packages(machine: Machine) -> None:
    """Other package managers are not supported."""
    (machine.bin / "apt-get").unlink()
    done = machine.run("--no-venv")
    assert done.returncode == 1
    assert (
        f"apt-get was not found: install the contents of these packages, then use --offline-ok: {PACKAGES}"
        in done.stderr
    )


def test_venv_is_made_once_and_again_when_requirements_change(machine: Machine) -> None:
    """The stamp contains the hash of the requirements."""
    machine.has(f"{PACKAGES} {TOOLS}")
    pip = f"python -m pip install --quiet --disable-pip-version-check -r {machine.tree}/requirements-dev.txt"
    assert machine.run().returncode == 0
    assert machine.run().returncode == 0
    assert machine.calls() == [pip]
    digest = hashlib.sha256(b"needed==1\ntool==1\n").hexdigest()
    assert digest in (machine.tree / ".venv/.stamp").read_text(encoding="utf-8")
    (machine.tree / "requirements-dev.txt").write_text("tool==2\n", encoding="utf-8")
    assert machine.run().returncode == 0
    assert machine.calls() == [pip, pip]


def test_demo_installs_few_tools_and_setup_adds_the_rest(machine: Machine) -> None:
    """Both use the same directory, and the demo installs nothing after a setup."""
    machine.has(PACKAGES)
    pip = f"python -m pip install --quiet --disable-pip-version-check -r {machine.tree}/requirements"
    assert (machine.run("--demo").returncode, machine.run("--demo").stdout) == (0, "")
    assert machine.calls() == [f"{pip}-build.txt"]
    (machine.tree / ".venv" / "kept").touch()
    machine.has(f"{PACKAGES} {TOOLS}")
    assert machine.run().returncode == 0
    assert machine.calls() == [f"{pip}-build.txt", f"{pip}-dev.txt"]
    assert (machine.tree / ".venv" / "kept").exists()
    assert (machine.run("--demo").stdout, len(machine.calls())) == ("", 2)


def test_demo_continues_without_a_python_for_the_package(machine: Machine) -> None:
    """It prints one line about that."""
    machine.has(PACKAGES)
    machine.program("python3", 'case "$*" in *version_info*) exit 1 ;; *) exit 0 ;; esac')
    done = machine.run("--demo")
    assert done.returncode == 0
    assert done.stdout == "setup: continuing without the Python package: it needs Python 3.10 or newer\n"
    assert machine.calls() == []


def test_python_without_venv_needs_a_package(machine: Machine) -> None:
    """Debian packages ensurepip, Python's headers and CPython's own tests separately."""
    machine.has(f"{PACKAGES} {TOOLS}")
    machine.program("python3", "exit 1")
    done = machine.run()
    assert done.returncode == 1
    assert "apt-get install -y --no-install-recommends python3-venv python3-dev libpython3-testsuite\n" in done.stderr
    machine.program("python3", 'case "$*" in *Python.h*) exit 1 ;; *) exit 0 ;; esac')
    assert "apt-get install -y --no-install-recommends python3-dev\n" in machine.run().stderr
    machine.program("python3", 'case "$*" in *_test_multiprocessing*) exit 1 ;; *) echo 3.11 ;; esac')
    assert "apt-get install -y --no-install-recommends libpython3.11-testsuite\n" in machine.run().stderr


def without_pool_tests(machine: Machine) -> None:
    """Give the interpreter its test package without the tests of process pools."""
    python = machine.bin / "python3"
    case = "  *test_concurrent_futures*) exit 1 ;;\n  *version_info*) echo 3.11 ;;\n  --version)"
    python.write_text(python.read_text(encoding="utf-8").replace("  --version)", case, 1), encoding="utf-8")
    machine.has(f"{PACKAGES} {TOOLS}")


def test_pool_tests_are_unpacked_once(machine: Machine) -> None:
    """From the package for the interpreter's version, if necessary after fetching lists; nothing is installed."""
    without_pool_tests(machine)
    machine.program("id", "echo 0")
    machine.program(
        "apt-get",
        f'echo "apt-get $*" >> {machine.log}\n'
        f"if [ $1 = update ]; then : > {machine.tree}/updated; exit 0; fi\n"
        f"[ -e {machine.tree}/updated ] && : > libpython3.11-testsuite_3.11.2_all.deb",
    )
    machine.program("dpkg-deb", f'echo "dpkg-deb $*" >> {machine.log}; : > "$3/unpacked"')
    done = machine.run()
    assert (done.returncode, machine.run().stdout) == (0, "")
    download = "apt-get download -qq -o APT::Sandbox::User=root libpython3.11-testsuite"
    assert machine.calls()[1:] == [
        download,
        "apt-get update",
        download,
        "dpkg-deb -x ./libpython3.11-testsuite_3.11.2_all.deb .",
    ]
    assert [path.name for path in (machine.tree / ".venv/cpython-tests").iterdir()] == ["unpacked"]


@pytest.mark.parametrize("user", [0, 1000], ids=["no such package", "no rights"])
def test_pool_tests_may_be_missing(machine: Machine, user: int) -> None:
    """Then one test is skipped, and later calls of make do not retry."""
    without_pool_tests(machine)
    machine.program("id", f"echo {user}")
    machine.program("apt-get", f'echo "apt-get $1" >> {machine.log}; exit 100')
    done = machine.run()
    assert done.returncode == 0
    assert "setup: continuing without them: one test is skipped; to retry, run `rm -r .venv/" in done.stdout
    calls = machine.calls()
    assert (machine.run().stdout, machine.calls()) == ("", calls)


def test_offline_ok_unpacks_no_pool_tests(machine: Machine) -> None:
    """It prints what it skipped if there is a .venv."""
    without_pool_tests(machine)
    (machine.tree / ".venv").mkdir()
    done = machine.run("--offline-ok")
    assert done.returncode == 0
    assert "CPython's tests of process pools, from libpython3.11-testsuite\n" in done.stdout
    assert machine.calls() == []


def test_failing_pip_leaves_no_stamp(machine: Machine) -> None:
    """The next call retries."""
    machine.has(f"{PACKAGES} {TOOLS}")
    machine.program(
        "python3",
        'case "$*" in --version) echo v ;; "-m venv "*) mkdir -p "$3/bin"; '
        f'{shutil.which("cp")} {machine.bin}/dpkg-query "$3/bin/python" ;; *) exit 0 ;; esac',
    )
    done = machine.run()
    assert done.returncode == 1
    assert "pip failed to install the tools" in done.stderr
    assert not (machine.tree / ".venv/.stamp").exists()


def test_help_and_unknown_options(machine: Machine) -> None:
    """Help succeeds, an unknown option fails."""
    assert "usage: setup.sh" in machine.run("--help").stdout
    assert machine.run("--nonsense").returncode == 2
