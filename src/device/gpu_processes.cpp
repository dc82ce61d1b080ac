#include "device/gpu_processes.hpp"

#include "device/cuda/nvml.hpp"

namespace drover::device {

std::vector<GpuProcess> gpu_processes(const DeviceInfo& device) {
  if (device.backend != BackendKind::cuda || !device::cuda::nvml().is_usable()) return {};
  return device::cuda::nvml().processes_on(uuid_text(device));
}

}  // namespace drover::device
