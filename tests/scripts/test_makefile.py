"""The Makefile and the files that call it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from small_tree import ROOT

PROMISED = {
    "demo",
    "test",
    "test-all",
    "build",
    "bench",
    "lint",
    "gpu",
    "docs",
    "bundle",
    "setup",
    "clean",
    "help",
    "wheel",
    "check",
}


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make in a directory, without the settings of a make that runs this test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def targets_in_help() -> set[str]:
    """The names that `make help` lists."""
    return set(re.findall(r"^  make ([a-z-]+) +\S", make("help").stdout, re.MULTILINE))


def test_help_is_the_default_and_lists_every_target() -> None:
    """Each phony target has a line, and the promised targets are among them."""
    assert make().stdout == make("help").stdout
    phony = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert targets_in_help() == phony
    assert phony >= PROMISED


def test_every_target_can_be_planned() -> None:
    """No recipe refers to a missing target or variable."""
    for target in sorted(targets_in_help()):
        done = make("--dry-run", "--warn-undefined-variables", target)
        assert (done.returncode, done.stderr) == (0, ""), target


def test_test_check_and_test_all_are_plans_of_the_script() -> None:
    """They pass the base on; test_steps.py tests the steps."""
    for plan in ("test", "check"):
        assert f'scripts/steps.py {plan} --base "v1"' in make("--dry-run", plan, "BASE=v1").stdout
    assert "scripts/steps.py test-all" in make("--dry-run", "test-all").stdout


def test_demo_shows_both_languages_or_says_why_not() -> None:
    """The same program in C++ and, if there is a suitable Python, in Python."""
    both = make("--dry-run", "demo").stdout
    assert "examples/cpp/pool_map/pool_map" in both
    assert ".venv/bin/python examples/python/pool_map.py" in both
    one = make("--dry-run", "demo", "PYTHON=false").stdout
    assert "examples/python" not in one
    assert "drover_python" not in one
    assert "skipping pool_map in Python: it needs Python 3.10 or newer" in one


def test_bench_takes_one_workload_or_all(tmp_path: Path) -> None:
    """The directory of shared code is not a workload."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("device", "ring", "support"):
        (tmp_path / "benchmarks" / name).mkdir(parents=True)
    everything = make("--dry-run", "bench", cwd=tmp_path).stdout
    assert "--target bench_device bench_ring" in everything
    assert "support" not in everything
    one = make("--dry-run", "bench", "WORKLOAD=ring", cwd=tmp_path).stdout
    assert "--target bench_ring;" in one
    assert "build/release/benchmarks/bench_$workload --json build/bench/$workload.json" in one
    assert "--no-venv --benchmarks" in one
    assert "python" not in one


def test_bench_of_python_runs_the_programs_with_a_release_build(tmp_path: Path) -> None:
    """Nothing else is compiled, and the tools in .venv are installed."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    output = make("--dry-run", "bench", "WORKLOAD=python", cwd=tmp_path).stdout
    assert "--target drover_python drover_cli;" in output
    assert "for program in queue pipe pool start weight tensor" in output
    assert (
        f"PYTHONPATH={tmp_path}/build/release/python .venv/bin/python benchmarks/python/${{program}}_main.py"
        in output
    )
    assert "bench_python" not in output
    assert "--no-venv" not in output


@pytest.mark.parametrize("status", [0, 3])
def test_step_that_fails_is_named(tmp_path: Path, status: int) -> None:
    """Its output stays visible, and nothing runs after it."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "scripts").mkdir()
    for name, text in (("setup.sh", f"echo installing; exit {status}"), ("bundle_deps.py", "")):
        (tmp_path / "scripts" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / "scripts" / name).chmod(0o755)
    done = make("bundle", cwd=tmp_path)
    assert "installing\n" in done.stdout
    assert ("== bundle" in done.stdout) == (status == 0)
    assert ("make: the step 'setup' failed (status 3)" in done.stderr) == (status == 3)
    assert (done.returncode == 0) == (status == 0)


def test_continuous_integration_calls_targets_that_exist() -> None:
    """Every target that a workflow names is one of the Makefile's."""
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    named = {name.strip() for line in re.findall(r"target: \[([^\]]*)\]", workflow) for name in line.split(",")}
    assert named
    assert named <= targets_in_help()
    release = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    released = set(re.findall(r"run: make ([a-z-]+)", release))
    assert {"test", "test-wheel"} <= released <= targets_in_help()
    runner = ROOT / ".ci" / "run"
    assert os.access(runner, os.X_OK)
    assert "\nmake test\n" in runner.read_text(encoding="utf-8")


def test_pre_commit_calls_gates_that_exist() -> None:
    """Every gate that a hook names is one of lint's."""
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"--only (\S+)", text))
    listed = subprocess.run(
        ["python3", str(ROOT / "scripts/lint.py"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert named
    assert all(f"{name}:" in listed for name in named)
