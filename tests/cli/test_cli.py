"""The tool end to end: version, help, usage, devices, output that cannot be written."""

import os
import re
import subprocess

import pytest

GIB = 2**30
KEYS = [
    "id",
    "backend",
    "index",
    "name",
    "uuid",
    "memory_total",
    "memory_free",
    "pci",
    "numa_node",
    "compute_mode",
    "mig_enabled",
    "is_mig_instance",
    "mps_running",
]


def test_version_names_release_and_build(plain):
    """One line, for bug reports."""
    done = plain.run("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"drover \d+\.\d+\.\d+ \(.+\)\n", done.stdout)


def test_no_command_prints_help_and_is_wrong_usage(plain):
    """A script without a command must fail."""
    done = plain.run()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "devices" in done.stderr
    assert "doctor" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["fly"], ["--fly"], ["devices", "--fly"], ["devices", "cuda:0"], ["doctor", "--timeout"]],
    ids=" ".join,
)
def test_unknown_arguments_are_wrong_usage(plain, arguments):
    """The message refers to --help."""
    done = plain.run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--help" in done.stderr


@pytest.mark.parametrize("timeout", ["soon", "0", "-1", "99999"])
def test_invalid_timeout_is_wrong_usage(plain, timeout):
    """Neither words, nor zero, nor more than an hour."""
    done = plain.run("doctor", f"--timeout={timeout}")
    assert done.returncode == 2
    assert "--timeout" in done.stderr


@pytest.mark.parametrize("command", [[], ["devices"], ["doctor"]], ids=lambda words: " ".join(words) or "drover")
def test_help_has_examples(plain, command):
    """Every command has some, and the doctor's internal command is hidden."""
    done = plain.run(*command, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "Examples:\n" in done.stdout
    assert "probe-driver" not in done.stdout


def test_devices_table_names_the_backend_and_the_reason(host):
    """Below them is one row per emulated device."""
    done = host.run("devices")
    assert (done.returncode, done.stderr) == (0, "")
    first, heading, *rows = done.stdout.splitlines()
    assert first.startswith("backend: host (emulated devices, because ")
    assert "/nonexistent/libcuda.so.1" in first
    assert heading.split() == ["ID", "NAME", "UUID", "MEMORY", "USED/TOTAL", "PCI", "NUMA", "MODE"]
    assert [row.split()[0] for row in rows] == ["host:0", "host:1", "host:2"]
    for row in rows:
        assert "0 B / 1.0 GiB" in row
        assert re.search(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", row)
        assert row.endswith("shared")


def test_devices_json_has_every_key_and_null_for_unknown_values(host):
    """Programs may rely on keys and types."""
    listing = host.read_json("devices")
    assert list(listing) == ["backend", "reason", "devices"]
    assert listing["backend"] == "host"
    assert len(listing["devices"]) == 3
    assert len({device["uuid"] for device in listing["devices"]}) == 3
    for index, device in enumerate(listing["devices"]):
        assert list(device) == KEYS
        assert device["id"] == f"host:{index}"
        assert device["index"] == index
        assert device["memory_total"] == GIB
        assert device["memory_free"] == GIB
        assert device["pci"] is None
        assert device["mig_enabled"] is None
        assert device["is_mig_instance"] is False


def test_devices_of_a_driver_are_chosen_over_emulated_ones(gpu):
    """With everything that NVML reports."""
    listing = gpu.with_settings(FAKE_GPU_COUNT="2").read_json("devices")
    assert listing["backend"] == "cuda"
    assert "2 GPUs" in listing["reason"]
    assert [device["id"] for device in listing["devices"]] == ["cuda:0", "cuda:1"]
    device = listing["devices"][1]
    assert device["uuid"] == "GPU-fafafafa-fafa-fafa-fafa-fafafafafa02"
    assert device["pci"] == "0000:fb:00.0"
    assert (device["memory_total"], device["memory_free"]) == (16 * GIB, 12 * GIB)
    assert device["compute_mode"] == "shared"
    assert device["mig_enabled"] is False


def test_devices_all_shows_every_backend(gpu):
    """The selected backend is still the first."""
    listing = gpu.with_settings(DROVER_HOST_DEVICES="1").read_json("devices", "--all")
    assert listing["backend"] == "cuda"
    assert sorted(device["id"] for device in listing["devices"]) == ["cuda:0", "host:0"]


def test_devices_does_not_start_cuda(gpu):
    """Listing creates no context: a cuInit that kills its caller is never called."""
    done = gpu.with_settings(FAKE_CUINIT_CRASH="1").run("devices")
    assert (done.returncode, done.stderr) == (0, "")
    assert "cuda:0" in done.stdout


def test_devices_shows_modes(gpu):
    """Exclusive use and partitions are visible; an unknown mode is null."""
    exclusive = gpu.with_settings(FAKE_COMPUTE_MODE="3")
    assert "exclusive-process" in exclusive.run("devices").stdout
    partitioned = gpu.with_settings(FAKE_MIG="1", FAKE_MIG_INSTANCES="2")
    assert "shared, MIG instance" in partitioned.run("devices").stdout
    unpartitioned = gpu.with_settings(FAKE_MIG="1")
    assert "shared, MIG\n" in unpartitioned.run("devices").stdout
    assert partitioned.read_json("devices")["devices"][0]["is_mig_instance"] is True
    odd = gpu.with_settings(FAKE_COMPUTE_MODE="77")
    assert odd.read_json("devices")["devices"][0]["compute_mode"] is None


def test_device_that_does_not_report_its_memory_is_still_listed(gpu):
    """Users look for the faulty GPU."""
    sick = gpu.with_settings(FAKE_MEMORY_RESULT="15")
    device = sick.read_json("devices")["devices"][0]
    assert device["memory_free"] is None
    assert "? / " in sick.run("devices").stdout


def test_hidden_gpus_are_the_reason_for_emulation(gpu):
    """The reason names the variable that hides them."""
    listing = gpu.with_settings(CUDA_VISIBLE_DEVICES="").read_json("devices")
    assert listing["backend"] == "host"
    assert "CUDA_VISIBLE_DEVICES" in listing["reason"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"DROVER_HOST_DEVICES": "many"}, "DROVER_HOST_DEVICES=many"),
        ({"DROVER_HOST_DEVICES": "-1"}, "DROVER_HOST_DEVICES=-1"),
        ({"DROVER_HOST_MEMORY": "lots"}, "DROVER_HOST_MEMORY=lots"),
        ({"DROVER_BACKEND": "rocm"}, "DROVER_BACKEND=rocm"),
        ({"DROVER_BACKEND": "cuda"}, "/nonexistent/libcuda.so.1"),
    ],
    ids=str,
)
def test_wrong_setting_stops_devices_with_a_remedy(host, settings, words):
    """The message has the variable and its value."""
    done = host.with_settings(**settings).run("devices")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("drover: ")
    assert words in done.stderr
    assert "remedy: " in done.stderr


@pytest.mark.parametrize("arguments", [["devices"], ["devices", "--json"], ["doctor"]], ids=" ".join)
def test_reader_that_is_gone_is_not_an_error(host, arguments):
    """As in `drover devices | head -0`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nowhere:
        done = host.run(*arguments, stdout=nowhere)
    assert (done.returncode, done.stderr) == (0, "")


def test_full_disk_is_an_error(host):
    """Truncated output must not look complete."""
    with open("/dev/full", "wb") as full:
        done = host.run("devices", stdout=full)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr


def test_reader_that_is_gone_does_not_change_the_doctors_verdict(gpu):
    """As in `drover doctor | head -1` under pipefail."""
    sick = gpu.with_settings(FAKE_CUINIT_RESULT="802")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nowhere:
        done = sick.run("doctor", stdout=nowhere, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "")
