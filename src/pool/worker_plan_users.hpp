// pool/worker_plan_users.hpp: who uses a GPU, as far as NVML tells.
#pragma once

#include <vector>

#include "drover/pool/worker_plan.hpp"

namespace drover {

/// A process as NVML writes it (nvmlProcessInfo_v2_t).
struct NvmlProcess {
  unsigned pid;
  unsigned long long bytes;  ///< all ones if unknown
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(NvmlProcess) == 24);

/// The entry points of NVML that tell it; nullptr where a library lacks them.
struct NvmlProcessCalls {
  int (*handle_by_uuid)(const char* uuid, void** device) = nullptr;
  int (*processes)(void* device, unsigned* count, NvmlProcess* into) = nullptr;
};

/// Those of the library that `cuda` has loaded and initialised.
[[nodiscard]] NvmlProcessCalls nvml_process_calls();

/// Who has a context on the device; nobody if that cannot be learnt.
[[nodiscard]] std::vector<DeviceUser> users_of(const DeviceInfo& device, const NvmlProcessCalls& calls);

}  // namespace drover
