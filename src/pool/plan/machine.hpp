// pool/plan/machine.hpp: devices with the processes that use them.
#pragma once

#include <vector>

#include "device/gpu_processes.hpp"
#include "drover/pool/worker_plan.hpp"

namespace drover {

/// Adds the names of programs, where these processes are visible from here.
[[nodiscard]] std::vector<DeviceUser> users_of(const std::vector<GpuProcess>& processes);

/// The machine without these processes: they use no device, and their memory is free.
[[nodiscard]] Machine without(Machine machine, const std::vector<pid_t>& processes);

}  // namespace drover
