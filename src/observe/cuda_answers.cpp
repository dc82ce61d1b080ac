#include "observe/cuda_answers.hpp"

#include <algorithm>
#include <array>

namespace drover::observe {
namespace {

struct Row {
  int code;
  CudaAnswer answer;
};

constexpr const char* kRestartMps =
    "restart MPS (`echo quit | nvidia-cuda-mps-control`, then `nvidia-cuda-mps-control -d`), or unset "
    "CUDA_MPS_PIPE_DIRECTORY and stop the daemon to go without it";

constexpr std::array kRows = {
    Row{2, {"memory is exhausted", "free host memory and GPU memory; `nvidia-smi` shows who holds it"}},
    Row{34,
        {"the library is the toolkit's stub for linking, not a driver",
         "take the toolkit's directory lib64/stubs out of LD_LIBRARY_PATH and DROVER_LIBCUDA"}},
    Row{46,
        {"the GPU is unavailable: in exclusive use by another process, or in need of a reset",
         "end the process that holds it (`nvidia-smi` names it), or share it with `sudo nvidia-smi -c DEFAULT`"}},
    Row{kCudaNoDevice,
        {"the driver finds no GPU it can use",
         "run `nvidia-smi`; if it shows none, `sudo dmesg | grep NVRM` says why (fallen off the bus, unsupported, "
         "power); in a container start it with `docker run --gpus all`"}},
    Row{101,
        {"a requested device does not exist",
         "correct or unset CUDA_VISIBLE_DEVICES; `nvidia-smi -L` lists the GPUs"}},
    Row{102, {"the virtual GPU has no licence", "set up the vGPU licence (`nvidia-smi -q | grep -i licen`)"}},
    Row{304,
        {"a call into the operating system failed, most often on a device node",
         "check that this user can open /dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidia0, and that the container's "
         "profile allows it"}},
    Row{800, {"the operation is not permitted", "check the container's profile and the rights on /dev/nvidia*"}},
    Row{802,
        {"the system is not ready: on machines with NVSwitch the fabric manager must be running",
         "start it with `sudo systemctl enable --now nvidia-fabricmanager`, in exactly the driver's version; after a "
         "boot wait until `nvidia-smi -q` shows the fabric as completed"}},
    Row{805, {"the MPS daemon cannot be reached", kRestartMps}},
    Row{806, {"the MPS daemon does not answer as it should", kRestartMps}},
    Row{807, {"the MPS server is recovering from a fault of one of its clients", kRestartMps}},
    Row{808, {"MPS has reached its limit of clients", "start fewer processes on this GPU, or go without MPS"}},
    Row{809,
        {"MPS has no hardware connection left",
         "start fewer processes on this GPU, or lower CUDA_DEVICE_MAX_CONNECTIONS"}},
    Row{810, {"the MPS server ended this client", kRestartMps}},
    Row{999,
        {"the driver gives no reason, which is usual after suspend or when nvidia_uvm is stuck",
         "reload it with `sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm`; otherwise reboot"}},
};

constexpr CudaAnswer kUnknown = {
    "an error without a known cause",
    "run `nvidia-smi` and `sudo dmesg | grep -i -e nvrm -e xid`; reboot if they show the "
    "GPU in trouble"};

}  // namespace

CudaAnswer explain_cuda_answer(int code) noexcept {
  const auto* const row = std::ranges::find(kRows, code, &Row::code);
  return row == kRows.end() ? kUnknown : row->answer;
}

}  // namespace drover::observe
