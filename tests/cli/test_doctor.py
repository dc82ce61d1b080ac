"""The doctor from outside, on this machine and on fake drivers that fail in every way."""

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest
from drover_tool import WATCHDOG

SEVERITIES = ["ok", "note", "warning", "failure"]


def finding(diagnosis: dict, name: str) -> dict:
    """Give the finding of that id."""
    return next(found for found in diagnosis["findings"] if found["id"] == name)


def processes_marked(mark: str) -> list[int]:
    """Give the processes that have FAKE_MARK=mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            variables = (folder / "environ").read_bytes().split(b"\0") if folder.name.isdigit() else []
        except OSError:
            continue  # ended while we looked, or somebody else's
        if f"FAKE_MARK={mark}".encode() in variables:
            found.append(int(folder.name))
    return found


def wait_until(holds) -> None:
    """Return when `holds()` does; fail after a time that only a fault can take."""
    watchdog = time.monotonic() + WATCHDOG
    while not holds():
        assert time.monotonic() < watchdog, "waited in vain"
        time.sleep(0.01)


def read_terminal(drover, *arguments: str) -> str:
    """Run on a terminal and return what it shows."""
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
    """Whatever machine that is."""
    done = plain.run("doctor", "--json")
    assert done.returncode in (0, 1)
    diagnosis = plain.read_json("doctor", status=done.returncode)
    assert (diagnosis["verdict"] == "failure") == (done.returncode == 1)


def test_json_has_one_finding_per_id_with_a_remedy_where_one_is_due(host):
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
    """What the driver says travels whole from the probing process."""
    diagnosis = gpu.read_json("doctor")
    for name in ("driver-library", "driver-symbols", "driver-init", "nvml", "visible-devices", "compute-mode"):
        assert finding(diagnosis, name)["severity"] == "ok", name


def test_text_has_failures_first_and_the_verdict_last(gpu):
    """People read the first and the last line."""
    sick = gpu.with_settings(FAKE_CUINIT_RESULT="802", FAKE_COMPUTE_MODE="3")
    done = sick.run("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "Failures"
    assert lines[1].startswith("  driver-init: ")
    assert lines[2].startswith("    remedy: ")
    assert lines.index("Failures") < lines.index("Warnings") < lines.index("As it should be")
    assert lines[-1].startswith("Something cannot work: 1 failure, ")


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
        ({"CUDA_VISIBLE_DEVICES": "5,0"}, "visible-devices", '"5", which is not there', '"5"'),
        ({"DROVER_BACKEND": "rocm"}, "backend-setting", "DROVER_BACKEND=rocm", "auto, host or cuda"),
        ({"DROVER_BACKEND": "cuda", "FAKE_CUINIT_RESULT": "999"}, "backend-setting", "999", "unset DROVER_BACKEND"),
    ],
    ids=str,
)
def test_broken_driver_is_a_failure_with_a_remedy(gpu, settings, name, summary, remedy):
    """From the driver's own answer to words for people."""
    found = finding(gpu.with_settings(**settings).read_json("doctor", status=1), name)
    assert found["severity"] == "failure"
    assert summary in found["summary"]
    assert remedy in found["remedy"]


def test_gpus_of_different_models_need_an_order(gpu):
    """Numbers mean other GPUs to CUDA than to nvidia-smi."""
    mixed = gpu.with_settings(FAKE_GPU_COUNT="2", FAKE_GPU_NAMES="NVIDIA T4,NVIDIA H200", CUDA_VISIBLE_DEVICES="0")
    assert finding(mixed.read_json("doctor"), "device-order")["severity"] == "warning"
    ordered = mixed.with_settings(CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert finding(ordered.read_json("doctor"), "device-order")["severity"] == "ok"


def test_mps_directory_without_a_daemon_is_told_apart_by_what_cuda_says(gpu, tmp_path):
    """It hurts only where CUDA tries to connect."""
    empty = gpu.with_settings(CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    assert finding(empty.read_json("doctor"), "mps")["severity"] == "warning"
    (tmp_path / "control").touch()
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    refused = empty.with_settings(FAKE_CUINIT_RESULT="805")
    found = finding(refused.read_json("doctor", status=1), "mps")
    assert found["severity"] == "failure"
    assert str(tmp_path) in found["summary"]


def test_driver_that_hangs_at_the_start_is_reported_with_what_else_is_known(gpu):
    """The probe is killed; NVML is still asked."""
    hung = gpu.with_settings(FAKE_CUINIT_HANG="1", FAKE_MARK=f"start-{os.getpid()}")
    diagnosis = hung.read_json("doctor", "--timeout=1", status=1)
    assert finding(diagnosis, "driver-answer")["severity"] == "failure"
    assert "did not answer within 1 s when told to start" in finding(diagnosis, "driver-answer")["summary"]
    assert "1 GPU" in finding(diagnosis, "nvml")["summary"]
    assert processes_marked(f"start-{os.getpid()}") == []


def test_driver_that_hangs_when_loaded_is_reported(gpu):
    """Then nothing else is known, and no process is left."""
    hung = gpu.with_settings(FAKE_NVML_HANG="1", FAKE_MARK=f"load-{os.getpid()}")
    diagnosis = hung.read_json("doctor", "--timeout=0.5", status=1)
    assert "did not answer within 0.5 s" in finding(diagnosis, "driver-answer")["summary"]
    assert processes_marked(f"load-{os.getpid()}") == []


def test_driver_that_crashes_does_not_take_the_doctor_with_it(gpu):
    """It takes the probe only."""
    crashing = gpu.with_settings(FAKE_CUINIT_CRASH="1")
    found = finding(crashing.read_json("doctor", status=1), "driver-answer")
    assert "SIGSEGV" in found["summary"]
    assert "reinstall" in found["remedy"]


def test_driver_that_chatters_is_understood(gpu):
    """Its words on standard output do not spoil the report."""
    diagnosis = gpu.with_settings(FAKE_CHATTER="1").read_json("doctor")
    assert finding(diagnosis, "driver-init")["severity"] == "ok"


def test_killed_doctor_leaves_no_process_behind(gpu):
    """The probe dies with it, even in a driver that hangs."""
    mark = f"killed-{os.getpid()}"
    hung = gpu.with_settings(FAKE_CUINIT_HANG="1", FAKE_MARK=mark)
    doctor = subprocess.Popen([hung.path, "doctor"], env=hung.variables(), stdout=subprocess.DEVNULL)
    wait_until(lambda: len(processes_marked(mark)) == 2)
    (probe,) = set(processes_marked(mark)) - {doctor.pid}
    # The first thing the probe does is to ask that it die with its parent; once it has the driver, it has asked.
    wait_until(lambda: "libcuda" in Path(f"/proc/{probe}/maps").read_text())
    doctor.send_signal(signal.SIGKILL)
    doctor.wait()
    wait_until(lambda: not processes_marked(mark))


def test_colour_is_for_terminals_that_want_it(gpu):
    """Neither pipes, NO_COLOR nor dumb terminals get escape codes."""
    terminal = gpu.with_settings(TERM="xterm")
    assert "\x1b[1;32m" in read_terminal(terminal, "doctor")
    assert "\x1b" not in terminal.run("doctor").stdout
    assert "\x1b" not in read_terminal(terminal.with_settings(NO_COLOR="1"), "doctor")
    assert "\x1b" not in read_terminal(gpu.with_settings(TERM="dumb"), "doctor")
