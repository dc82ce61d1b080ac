"""The doctor end to end, on this machine and with fake drivers that fail in every way."""

import os
import pty
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from drover_tool import WATCHDOG, Drover

SEVERITIES = ["ok", "note", "warning", "failure"]


def finding(diagnosis: dict, name: str) -> dict:
    """The finding with this id."""
    return next(found for found in diagnosis["findings"] if found["id"] == name)


def test_program_with_more_rights_than_its_caller_ignores_variables_that_name_files(host) -> None:
    """Otherwise the caller would choose what it loads."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a program of another user")
    libraries = [host.environment["DROVER_LIBCUDA"], host.environment["DROVER_LIBNVML"]]
    assert any(library in host.run("doctor").stdout for library in libraries)
    with tempfile.TemporaryDirectory() as folder:  # tmp_path cannot be entered by another user
        os.chmod(folder, 0o755)  # noqa: S103 (another user must be able to execute the copy)
        copy = Path(folder, "drover")
        shutil.copy(host.path, copy)
        os.chown(copy, 65534, 65534)
        copy.chmod(0o4755)
        shown = Drover(host.environment, copy).run("doctor")
    assert "libcuda.so.1" in shown.stdout
    assert not any(library in shown.stdout for library in libraries)


def processes_marked(mark: str) -> list[int]:
    """The processes that have FAKE_MARK=mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            variables = (folder / "environ").read_bytes().split(b"\0") if folder.name.isdigit() else []
        except OSError:
            continue  # it has ended meanwhile, or belongs to another user
        if f"FAKE_MARK={mark}".encode() in variables:
            found.append(int(folder.name))
    return found


def wait_until(holds) -> None:
    """Return once `holds()` is true; fail after a time that only a fault can take."""
    watchdog = time.monotonic() + WATCHDOG
    while not holds():
        assert time.monotonic() < watchdog, "timed out"
        time.sleep(0.01)


def read_terminal(drover, *arguments: str) -> str:
    """Run on a terminal and return its contents."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([drover.path, *arguments], env=drover.variables(), stdout=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:
        pass  # Linux reports the end of a terminal as an error
    os.close(ours)
    child.wait()
    return shown.decode()


def test_exit_status_agrees_with_the_verdict_on_this_machine(plain):
    """On any machine."""
    done = plain.run("doctor", "--json")
    assert done.returncode in (0, 1)
    diagnosis = plain.read_json("doctor", status=done.returncode)
    assert (diagnosis["verdict"] == "failure") == (done.returncode == 1)


def test_json_has_one_finding_per_id_and_a_remedy_for_each_problem(host):
    """Programs may rely on keys, severities and verdict."""
    diagnosis = host.read_json("doctor")
    assert list(diagnosis) == ["version", "verdict", "findings"]
    assert diagnosis["version"].startswith("drover ")
    ids = [found["id"] for found in diagnosis["findings"]]
    assert len(ids) == len(set(ids))
    for found in diagnosis["findings"]:
        assert list(found) == ["id", "severity", "summary", "remedy"]
        assert found["severity"] in SEVERITIES
        assert found["summary"]
        assert found["remedy"] is None or found["severity"] != "ok"
        assert found["remedy"] or found["severity"] not in ("warning", "failure")
    worst = max(diagnosis["findings"], key=lambda found: SEVERITIES.index(found["severity"]))
    assert diagnosis["verdict"] == worst["severity"]


def test_good_driver_passes(gpu):
    """The probing process passes on the complete report."""
    diagnosis = gpu.read_json("doctor")
    for name in ("driver-library", "driver-symbols", "driver-init", "nvml", "visible-devices", "compute-mode"):
        assert finding(diagnosis, name)["severity"] == "ok", name


def test_text_has_failures_first_and_the_verdict_last(gpu):
    """Those are the lines that users read."""
    sick = gpu.with_settings(FAKE_CUINIT_RESULT="802", FAKE_COMPUTE_MODE="3")
    done = sick.run("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "Failures"
    assert lines[1].startswith("  driver-init: ")
    assert lines[2].startswith("    remedy: ")
    assert lines.index("Failures") < lines.index("Warnings") < lines.index("Passed")
    assert lines[-1].startswith("Not ready: 1 failure, ")


def test_warnings_alone_do_not_fail(gpu):
    """`drover doctor && ./train` starts."""
    done = gpu.with_settings(FAKE_COMPUTE_MODE="3").run("doctor")
    assert done.returncode == 0
    assert "Warnings\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Ready: 0 failures, ")


@pytest.mark.parametrize(
    ("settings", "name", "summary", "remedy"),
    [
        ({"FAKE_CUINIT_RESULT": "46"}, "driver-init", "CUDA_ERROR_DEVICE_UNAVAILABLE", "nvidia-smi -c DEFAULT"),
        ({"FAKE_CUINIT_RESULT": "100"}, "driver-init", "CUDA_ERROR_NO_DEVICE", "nvidia-smi"),
        ({"FAKE_CUINIT_RESULT": "802"}, "driver-init", "fabric manager", "nvidia-fabricmanager"),
        ({"FAKE_CUINIT_RESULT": "999"}, "driver-init", "CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        ({"FAKE_CUINIT_RESULT": "803", "FAKE_NVML_RESULT": "18"}, "driver-versions", "mismatch", "reboot"),
        ({"FAKE_CUINIT_RESULT": "804"}, "driver-versions", "forward-compatibility", "LD_LIBRARY_PATH"),
        ({"FAKE_NVML_RESULT": "15"}, "nvml", "GPU is lost", "nvidia-smi"),
        ({"FAKE_CUDA_MISSING": "cuMemMap,cuMemCreate"}, "driver-symbols", "cuMemCreate, cuMemMap", "525"),
        ({"FAKE_CUDA_MISSING": "cuInit"}, "driver-symbols", "stub for linking", "lib64/stubs"),
        ({"FAKE_COMPUTE_MODE": "2"}, "compute-mode", "prohibited", "nvidia-smi -c DEFAULT"),
        ({"FAKE_MIG": "1"}, "mig", "no instance", "nvidia-smi mig -cgi"),
        ({"CUDA_VISIBLE_DEVICES": "5,0"}, "visible-devices", '"5", which does not exist', '"5"'),
        ({"DROVER_BACKEND": "rocm"}, "backend-setting", "DROVER_BACKEND=rocm", "auto, host or cuda"),
        ({"DROVER_BACKEND": "cuda", "FAKE_CUINIT_RESULT": "999"}, "backend-setting", "999", "unset DROVER_BACKEND"),
    ],
    ids=str,
)
def test_broken_driver_is_a_failure_with_a_remedy(gpu, settings, name, summary, remedy):
    """The summary explains the driver's error."""
    found = finding(gpu.with_settings(**settings).read_json("doctor", status=1), name)
    assert found["severity"] == "failure"
    assert summary in found["summary"]
    assert remedy in found["remedy"]


def test_gpus_of_different_models_need_an_order(gpu):
    """CUDA numbers them differently from nvidia-smi."""
    mixed = gpu.with_settings(FAKE_GPU_COUNT="2", FAKE_GPU_NAMES="NVIDIA T4,NVIDIA H200", CUDA_VISIBLE_DEVICES="0")
    assert finding(mixed.read_json("doctor"), "device-order")["severity"] == "warning"
    ordered = mixed.with_settings(CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert finding(ordered.read_json("doctor"), "device-order")["severity"] == "ok"


def test_mps_directory_without_a_daemon_is_a_failure_only_if_cuda_fails(gpu, tmp_path):
    """It is a problem only if CUDA tries to connect."""
    empty = gpu.with_settings(CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    assert finding(empty.read_json("doctor"), "mps")["severity"] == "warning"
    (tmp_path / "control").touch()
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    refused = empty.with_settings(FAKE_CUINIT_RESULT="805")
    found = finding(refused.read_json("doctor", status=1), "mps")
    assert found["severity"] == "failure"
    assert str(tmp_path) in found["summary"]


def test_driver_that_hangs_in_cuinit_is_reported_with_the_other_findings(gpu):
    """The probe is killed, and NVML is queried without it."""
    hung = gpu.with_settings(FAKE_CUINIT_HANG="1", FAKE_MARK=f"start-{os.getpid()}")
    diagnosis = hung.read_json("doctor", "--timeout=1", status=1)
    assert finding(diagnosis, "driver-answer")["severity"] == "failure"
    assert "did not answer within 1 s in cuInit" in finding(diagnosis, "driver-answer")["summary"]
    assert "1 GPU" in finding(diagnosis, "nvml")["summary"]
    assert processes_marked(f"start-{os.getpid()}") == []


def test_driver_that_hangs_when_loaded_is_reported(gpu):
    """Nothing else is known then, and no process is left behind."""
    hung = gpu.with_settings(FAKE_NVML_HANG="1", FAKE_MARK=f"load-{os.getpid()}")
    diagnosis = hung.read_json("doctor", "--timeout=0.5", status=1)
    assert "did not answer within 0.5 s" in finding(diagnosis, "driver-answer")["summary"]
    assert processes_marked(f"load-{os.getpid()}") == []


def test_driver_that_crashes_does_not_end_the_doctor(gpu):
    """It ends only the probe."""
    crashing = gpu.with_settings(FAKE_CUINIT_CRASH="1")
    found = finding(crashing.read_json("doctor", status=1), "driver-answer")
    assert "SIGSEGV" in found["summary"]
    assert "reinstall" in found["remedy"]


def test_driver_that_prints_to_standard_output_does_not_spoil_the_report(gpu):
    """The report is the last line."""
    diagnosis = gpu.with_settings(FAKE_CHATTER="1").read_json("doctor")
    assert finding(diagnosis, "driver-init")["severity"] == "ok"


def test_killed_doctor_leaves_no_process_behind(gpu):
    """The probe dies with it, even inside a driver that hangs."""
    mark = f"killed-{os.getpid()}"
    hung = gpu.with_settings(FAKE_CUINIT_HANG="1", FAKE_MARK=mark)
    doctor = subprocess.Popen([hung.path, "doctor"], env=hung.variables(), stdout=subprocess.DEVNULL)
    wait_until(lambda: len(processes_marked(mark)) == 2)
    (probe,) = set(processes_marked(mark)) - {doctor.pid}
    # The probe first requests to die with its parent; once it has loaded the driver, it has done so.
    wait_until(lambda: "libcuda" in Path(f"/proc/{probe}/maps").read_text())
    doctor.send_signal(signal.SIGKILL)
    doctor.wait()
    wait_until(lambda: not processes_marked(mark))


def test_colour_is_used_only_on_suitable_terminals(gpu):
    """Pipes, NO_COLOR and dumb terminals get no escape codes."""
    terminal = gpu.with_settings(TERM="xterm")
    assert "\x1b[1;32m" in read_terminal(terminal, "doctor")
    assert "\x1b" not in terminal.run("doctor").stdout
    assert "\x1b" not in read_terminal(terminal.with_settings(NO_COLOR="1"), "doctor")
    assert "\x1b" not in read_terminal(gpu.with_settings(TERM="dumb"), "doctor")
