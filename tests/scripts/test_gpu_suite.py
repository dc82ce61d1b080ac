"""scripts/gpu_suite.py, and the modules that it uses, with fake GPUs and fake test programs."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import gpu_suite
import gpus
import gtest_program
import pytest
from gpus import Gpu
from gtest_program import FAILED, PASSED
from small_tree import SCRIPTS

# Behaves like a GoogleTest program: lists its tests, or runs them and writes a report. The names of the tests decide
# what happens.
PROGRAM = r"""#!{python}
import json, os, signal, sys, time

TESTS = {tests!r}
if "--gtest_list_tests" in sys.argv:
    print("Running main() from a harness")
    suite = ""
    for name in TESTS:
        head, tail = name.split(".")
        if head != suite:
            suite = head
            print(head + ".")
        print("  " + tail + "  # GetParam() = 4-byte object")
    sys.exit(0)
report = next(a for a in sys.argv if a.startswith("--gtest_output=json:")).split(":", 1)[1]
suites, status = [], 0
for name in TESTS:
    head, tail = name.split(".")
    print("[ RUN      ] " + name, flush=True)
    if "crashes" in name:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "hangs" in name:
        time.sleep(600)
    result = {{"name": tail, "result": "SKIPPED" if "skips" in name else "COMPLETED", "time": "0.25s"}}
    if "fails" in name:
        result["failures"] = [{{"failure": "a_test.cpp:7\nExpected equality"}}]
        status = 1
    suites.append({{"name": head, "testsuite": [result]}})
    print("[       OK ] " + name + " (250 ms)", flush=True)
with open(report, "w") as out:
    json.dump({{"testsuites": suites}}, out)
sys.exit(3 if any("late" in name for name in TESTS) else status)
"""


def write_program(path: Path, text: str) -> None:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def write_tests(folder: Path, name: str, *tests: str) -> Path:
    """Make a fake test program in a build directory."""
    program = folder / "tests" / name
    write_program(program, PROGRAM.format(python=sys.executable, tests=list(tests)))
    return program


def suite(folder: Path, *arguments: str) -> int:
    """Run the suite on a build directory without building."""
    return gpu_suite.main(["--build", str(folder), "--no-build", *arguments])


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a machine with one GPU; the list has the bytes in use at each query, and the last one repeats."""
    used = [100 * 2**20]
    monkeypatch.setattr(gpus, "find_gpus", lambda: ([Gpu("Fake 1", used.pop(0) if len(used) > 1 else used[0])], ""))
    monkeypatch.setattr(gpu_suite, "LEAK_PATIENCE_S", 0.0)
    return used


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a machine without a GPU."""
    monkeypatch.setattr(gpus, "find_gpus", lambda: ([], "NVML: no library"))


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_every_test_is_listed_as_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table is printed, nothing runs, and that is a success."""
    write_tests(tmp_path, "device_test", "Backends/Suite.crashes/cuda", "CudaDriver.loads")
    assert suite(tmp_path) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["device_test", "Backends/Suite.crashes/cuda", "skipped", "0.00"] in lines
    assert ["device_test", "CudaDriver.loads", "skipped", "0.00"] in lines
    assert ["0", "passed,", "0", "failed,", "2", "skipped"] in lines


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_and_a_compiler_nothing_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the missing programs, and that is a success too."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_suite.main(["--build", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "no usable GPU (NVML: no library)" in text
    assert "the build needs cmake, ninja, a C++ compiler" in text
    assert text.endswith("0 passed, 0 failed, 0 skipped\n")


@pytest.mark.usefixtures("one_gpu")
def test_build_that_fails_is_a_failure_with_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the build's output is shown."""
    write_program(tmp_path / "cmake", "#!/bin/sh\necho 'a.cpp:1: error: nonsense'\nexit 2\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_suite.main(["--build", str(tmp_path / "build")]) == 1
    text = capsys.readouterr()
    assert f"gpu: cmake --preset release -B {tmp_path / 'build'}" in text.out
    assert "a.cpp:1: error: nonsense" in text.err
    assert "failed with status 2" in text.err


@pytest.mark.usefixtures("one_gpu")
def test_results_of_all_programs_make_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Passed, failed and skipped tests, the message of the failure, and the check of memory."""
    write_tests(tmp_path, "device_test", "CudaDriver.loads", "CudaDriver.fails", "CudaDriver.skips")
    write_tests(tmp_path, "other/tensor_test", "Backends/Suite.works/cuda")
    write_tests(tmp_path, "base_test")
    assert suite(tmp_path) == 1
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    assert ["suite", "test", "result", "seconds"] in lines
    assert ["device_test", "CudaDriver.loads", "passed", "0.25"] in lines
    assert ["device_test", "CudaDriver.fails", "FAILED", "0.25"] in lines
    assert ["device_test", "CudaDriver.skips", "skipped", "0.25"] in lines
    assert ["tensor_test", "Backends/Suite.works/cuda", "passed", "0.25"] in lines
    assert "FAILED device_test CudaDriver.fails\na_test.cpp:7\nExpected equality" in text
    assert text.endswith("3 passed, 1 failed, 1 skipped\n")


@pytest.mark.usefixtures("one_gpu")
def test_machine_with_a_gpu_must_have_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty run is a failure."""
    assert suite(tmp_path) == 1
    assert "no test in" in capsys.readouterr().out


def test_memory_that_stays_in_use_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_gpu: list[int]
) -> None:
    """By more than 16 MiB; the first query prints the GPU, the second is the reference."""
    write_tests(tmp_path, "device_test", "CudaDriver.loads")
    one_gpu[:] = [0, 100 * 2**20, 117 * 2**20]
    assert suite(tmp_path) == 1
    assert "17 MiB more GPU memory is in use than before the suite" in capsys.readouterr().out
    one_gpu[:] = [0, 100 * 2**20, 116 * 2**20]
    assert suite(tmp_path) == 0


@pytest.mark.usefixtures("one_gpu")
def test_benchmark_runs_unless_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its report is shown, and its failure counts."""
    write_tests(tmp_path, "device_test", "CudaDriver.loads")
    write_program(tmp_path / "benchmarks/bench_device", '#!/bin/sh\necho "copy 55 GB/s $1 $2"\n')
    assert suite(tmp_path) == 0
    text = capsys.readouterr().out
    assert f"copy 55 GB/s --json {tmp_path}/gpu_suite/bench_device.json" in text
    assert text.endswith("3 passed, 0 failed, 0 skipped\n")
    assert suite(tmp_path, "--no-bench") == 0
    assert "copy 55" not in capsys.readouterr().out
    write_program(tmp_path / "benchmarks/bench_device", "#!/bin/sh\nexit 5\n")
    assert suite(tmp_path) == 1
    assert "FAILED bench_device benchmark\nended with status 5" in capsys.readouterr().out


@pytest.mark.usefixtures("one_gpu")
def test_sanitizer_runs_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that fault on purpose are excluded, and a finding is a failure."""
    write_tests(tmp_path, "device_test", "CudaDriver.loads")
    write_tests(tmp_path, "base_test")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    write_program(tmp_path / "compute-sanitizer", f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n')
    assert suite(tmp_path, "--sanitizer") == 0
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert len(calls) == 1
    assert calls[0].endswith(
        f"{tmp_path}/tests/device_test --gtest_filter=*Cuda*:*/cuda*-*fault*:*destroying_a_stream*"
    )
    write_program(tmp_path / "compute-sanitizer", "#!/bin/sh\necho Invalid __global__ write\nexit 9\n")
    assert suite(tmp_path, "--sanitizer") == 1
    assert "FAILED sanitizer device_test\nInvalid __global__ write" in capsys.readouterr().out


@pytest.mark.usefixtures("one_gpu")
def test_python_package_is_tested_if_it_was_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the table, its failures count, and it can be skipped."""
    write_tests(tmp_path, "device_test", "CudaDriver.loads")
    monkeypatch.setattr(gpu_suite, "find_python", lambda: ("/usr/bin/python3", ""))
    rows = [gtest_program.Row("python", "test_queue.test_order", FAILED, 0.5, "assert 1 == 2")]
    monkeypatch.setattr(gpu_suite, "run_python_tests", lambda *_: rows)
    assert suite(tmp_path) == 0
    write_program(tmp_path / "python/drover/_core.abi3.so", "")
    assert suite(tmp_path, "--no-python") == 0
    capsys.readouterr()
    assert suite(tmp_path) == 1
    text = capsys.readouterr().out
    assert "FAILED python test_queue.test_order\nassert 1 == 2" in text
    assert text.endswith("2 passed, 1 failed, 0 skipped\n")


@pytest.mark.parametrize("python", ["/usr/bin/python3", None])
@pytest.mark.usefixtures("no_gpu")
def test_package_is_built_for_an_interpreter_with_the_needed_modules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, python: str | None
) -> None:
    """Without one, the rest is built without the package, and the reason is printed."""
    write_program(tmp_path / "cmake", f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(gpu_suite, "find_python", lambda: (python, "python3: No module named 'nanobind'"))
    assert gpu_suite.main(["--build", str(tmp_path / "build")]) == 0
    configured = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()[0]
    output = capsys.readouterr().out
    if python:
        assert configured.endswith(f"-DDROVER_BUILD_PYTHON=ON -DPython_EXECUTABLE={python}")
        assert "skipping" not in output
    else:
        assert configured.endswith("-DDROVER_BUILD_PYTHON=OFF")
        assert "skipping the Python package" in output
        assert "No module named 'nanobind'" in output


def test_crash_is_assigned_to_its_test_and_tests_after_it_are_failures(tmp_path: Path) -> None:
    """Without a report, the results come from the output."""
    program = write_tests(tmp_path, "device_test", "Cuda.works", "Cuda.crashes", "Cuda.comes_after")
    rows = {row.test: row for row in gtest_program.run_tests(program, "*", tmp_path, 60)}
    assert rows["Cuda.works"].result == PASSED
    assert rows["Cuda.crashes"].result == FAILED
    assert "the program ended with status -11 in this test" in rows["Cuda.crashes"].detail
    assert rows["Cuda.comes_after"].result == FAILED
    assert rows["Cuda.comes_after"].detail == "was not run: the program ended with status -11"


def test_program_that_hangs_is_killed_and_its_stacks_are_kept(tmp_path: Path) -> None:
    """The log contains the process tree."""
    program = write_tests(tmp_path, "device_test", "Cuda.hangs")
    (row,) = gtest_program.run_tests(program, "*", tmp_path, 0.5)
    assert row.result == FAILED
    assert row.detail.startswith("timed out in this test")
    assert "process tree of " in (tmp_path / "device_test.log").read_text(encoding="utf-8")


def test_program_that_dies_after_its_tests_is_a_failure(tmp_path: Path) -> None:
    """Passed tests must not hide a crash at exit."""
    program = write_tests(tmp_path, "device_test", "Cuda.works", "Cuda.works_till_late")
    rows = {row.test: row for row in gtest_program.run_tests(program, "*", tmp_path, 60)}
    assert [row.result for row in rows.values()] == [PASSED, PASSED, FAILED]
    assert rows["(program)"].detail.startswith("the program ended with status 3 though no test failed")


def test_program_that_cannot_list_its_tests_is_a_failure(tmp_path: Path) -> None:
    """The row names the program."""
    program = tmp_path / "device_test"
    write_program(program, "#!/bin/sh\nexit 1\n")
    (row,) = gtest_program.run_tests(program, "*", tmp_path, 60)
    assert (row.result, row.test) == (FAILED, "(list of tests)")
    assert str(program) in row.detail
    (row,) = gpu_suite.skipped_rows([program], "no GPU")
    assert row.result == FAILED


def test_interrupt_ends_the_suite_and_its_processes(tmp_path: Path) -> None:
    """Ctrl-C, sent to the suite alone."""
    program = write_tests(tmp_path / "build", "device_test", "Cuda.hangs")
    driver = (
        f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import gpus, gpu_suite\n"
        "gpus.find_gpus = lambda: ([gpus.Gpu('Fake', 0)], '')\n"
        f"sys.exit(gpu_suite.main(['--no-build', '--build', {str(tmp_path / 'build')!r}]))\n"
    )
    log = tmp_path / "build/gpu_suite/device_test.log"
    with subprocess.Popen([sys.executable, "-c", driver], stderr=subprocess.PIPE, text=True) as process:
        while not (log.exists() and "RUN" in log.read_text(encoding="utf-8")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "interrupted; all processes of the suite were killed" in process.stderr.read()
    assert process.returncode == 130
    running = (Path("/proc", name, "cmdline") for name in os.listdir("/proc") if name.isdigit())
    assert not any(str(program).encode() in line.read_bytes() for line in running if line.exists())


def test_gpus_are_found_by_nvidia_smi_if_nvml_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and memory in use come from its table; without it there are none, with a reason."""
    monkeypatch.setattr(gpus, "NVML", "libdoes-not-exist.so.9")
    monkeypatch.setenv("PATH", str(tmp_path))
    found, reason = gpus.find_gpus()
    assert found == []
    assert "libdoes-not-exist.so.9" in reason
    write_program(tmp_path / "nvidia-smi", '#!/bin/sh\necho "NVIDIA X, 512"\necho "NVIDIA Y, 0"\n')
    assert gpus.find_gpus() == ([Gpu("NVIDIA X", 512 * 2**20), Gpu("NVIDIA Y", 0)], "")
    write_program(tmp_path / "nvidia-smi", "#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert gpus.gpus_from_smi() == []


def test_list_of_tests_is_parsed(tmp_path: Path) -> None:
    """With suites, parameters and comments, and without lines of the harness."""
    program = write_tests(tmp_path, "device_test", "A.b", "P/S.c/cuda_1", "P/S.d/cuda")
    assert gtest_program.list_tests(program, "*") == ["A.b", "P/S.c/cuda_1", "P/S.d/cuda"]
