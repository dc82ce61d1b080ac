#include "device/gpu_processes.hpp"

#include <limits>

#include "device/cuda/nvml.hpp"

namespace drover {

std::vector<GpuProcess> gpu_processes(const DeviceInfo& device) {
  if (device.backend != BackendKind::cuda || !cuda::nvml().is_usable()) return {};
  return cuda::nvml().processes_on(uuid_text(device));
}

namespace cuda {
namespace {

constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE, with the count that is needed
constexpr unsigned kRoomToSpare = 8;
constexpr int kTries = 4;

std::vector<NvmlProcess> list_processes(const Nvml& library, NvmlDevice device) {
  std::vector<NvmlProcess> found(kRoomToSpare);
  for (int attempt = 0; attempt < kTries; ++attempt) {  // processes may start between two calls
    auto count = static_cast<unsigned>(found.size());
    const int code = library.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, found.data());
    if (code == kTooSmall) {
      found.resize(count + kRoomToSpare);
      continue;
    }
    found.resize(code == 0 ? count : 0);
    return found;
  }
  return {};
}

}  // namespace

std::vector<GpuProcess> Nvml::processes_on(const std::string& uuid) const {
  if (!nvmlDeviceGetHandleByUUID.is_present() || !nvmlDeviceGetComputeRunningProcesses_v3.is_present()) return {};
  NvmlDevice device = nullptr;
  if (nvmlDeviceGetHandleByUUID(uuid.c_str(), &device) != 0) return {};
  std::vector<GpuProcess> processes;
  for (const auto& process : list_processes(*this, device)) {
    const bool is_known = process.bytes != std::numeric_limits<unsigned long long>::max();
    processes.push_back({.pid = static_cast<pid_t>(process.pid), .bytes = is_known ? process.bytes : 0});
  }
  return processes;
}

}  // namespace cuda

}  // namespace drover
