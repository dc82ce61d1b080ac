// device/gpu_processes.hpp: who uses a GPU, as far as NVML tells.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "drover/device/info.hpp"

namespace drover {

/// A process that has a context on a GPU.
struct GpuProcess {
  pid_t pid = 0;            ///< in a container it may mean nothing here
  std::uint64_t bytes = 0;  ///< of the GPU's memory; 0 if unknown
};

/// Who has a context on the device; nobody if it is no GPU, or if that cannot be learnt. Does not initialise CUDA.
[[nodiscard]] std::vector<GpuProcess> gpu_processes(const DeviceInfo& device);

}  // namespace drover
