#include "device/gpu_processes.hpp"

#include "device/cuda/nvml.hpp"

namespace drover {

std::vector<GpuProcess> gpu_processes(const DeviceInfo& device) {
  if (device.backend != BackendKind::cuda || !cuda::nvml().is_usable()) return {};
  return cuda::nvml().processes_on(uuid_text(device));
}

}  // namespace drover
