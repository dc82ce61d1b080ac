// pool/plan/worker_plan_users.hpp: who uses a device, by name.
#pragma once

#include <vector>

#include "device/gpu_processes.hpp"
#include "drover/pool/worker_plan.hpp"

namespace drover {

/// These processes with the names of their programs, where they are visible from here.
[[nodiscard]] std::vector<DeviceUser> users_of(const std::vector<GpuProcess>& processes);

/// The machine as it would be without these processes: they use no device, and what they have of its memory is free.
[[nodiscard]] Machine without(Machine machine, const std::vector<pid_t>& processes);

}  // namespace drover
