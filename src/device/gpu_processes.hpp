// device/gpu_processes.hpp: the processes that use a GPU, according to NVML.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "drover/device/info.hpp"

namespace drover::device {

/// A process that has a context on a GPU.
struct GpuProcess {
  pid_t pid = 0;            ///< may be meaningless in a container
  std::uint64_t bytes = 0;  ///< GPU memory in use; 0 if unknown
};

/// The processes with a context on the device; empty if it is not a GPU, or if NVML does not report them. Does not
/// initialise CUDA.
[[nodiscard]] std::vector<GpuProcess> gpu_processes(const DeviceInfo& device);

}  // namespace drover::device
