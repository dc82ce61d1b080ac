// pool/worker_plan_users.hpp: who uses a device, by name.
#pragma once

#include <vector>

#include "device/gpu_processes.hpp"
#include "drover/pool/worker_plan.hpp"

namespace drover {

/// These processes with the names of their programs, where they are visible from here.
[[nodiscard]] std::vector<DeviceUser> users_of(const std::vector<GpuProcess>& processes);

}  // namespace drover
