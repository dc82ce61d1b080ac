"""The GPUs of this machine and the memory in use on them, from NVML through ctypes or else from nvidia-smi."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass

NVML = "libnvidia-ml.so.1"
SMI_TIMEOUT_S = 60
NAME_BYTES = 96


@dataclass(frozen=True)
class Gpu:
    """A GPU and the memory that all processes together use on it."""

    name: str
    used_bytes: int


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class NvmlError(Exception):
    """NVML is absent or does not answer."""


def _check(code: int, call: str) -> None:
    if code != 0:
        raise NvmlError(f"{call} returned {code}")


def _gpus_of(nvml: ctypes.CDLL) -> list[Gpu]:
    count = ctypes.c_uint()
    _check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount_v2")
    found = []
    for index in range(count.value):
        handle, name, memory = ctypes.c_void_p(), ctypes.create_string_buffer(NAME_BYTES), _Memory()
        _check(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)), "nvmlDeviceGetHandleByIndex_v2")
        _check(nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(NAME_BYTES)), "nvmlDeviceGetName")
        _check(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)), "nvmlDeviceGetMemoryInfo")
        found.append(Gpu(name.value.decode(errors="replace"), memory.used))
    return found


def gpus_from_nvml() -> list[Gpu]:
    """The GPUs that NVML reports; raises NvmlError if it is absent or broken."""
    try:
        nvml = ctypes.CDLL(NVML)
        _check(nvml.nvmlInit_v2(), "nvmlInit_v2")
    except (OSError, AttributeError) as error:
        raise NvmlError(str(error)) from error
    try:
        return _gpus_of(nvml)
    finally:
        nvml.nvmlShutdown()


def gpus_from_smi() -> list[Gpu]:
    """The GPUs that nvidia-smi reports; empty if it is absent or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=name,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=True)
        rows = [line.rsplit(",", 1) for line in done.stdout.splitlines() if line.strip()]
        return [Gpu(name.strip(), int(used) * 2**20) for name, used in rows]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def find_gpus() -> tuple[list[Gpu], str]:
    """The GPUs, and the reason if there are none."""
    try:
        found = gpus_from_nvml()
        return found, "" if found else "NVML shows no GPU"
    except NvmlError as error:
        found = gpus_from_smi()
        return found, "" if found else f"NVML: {error}; nvidia-smi shows none either"
