// pool/plan/devices.hpp: assigns devices to workers.
#pragma once

#include <string>
#include <vector>

#include "drover/pool/worker_plan.hpp"

namespace drover::pool {

/// The device of one worker; nullptr for a worker without one.
using Chosen = const MachineDevice*;

/// The device of each worker, in order; pointers into `machine`. Throws as plan_workers.
[[nodiscard]] std::vector<Chosen> choose_devices(const WorkerPlanOptions& options, const Machine& machine);

/// "cuda:0 (NVIDIA H200)".
[[nodiscard]] std::string describe(const MachineDevice& device);

/// " (CUDA_VISIBLE_DEVICES=1 hides all others)"; empty if the variable is not set.
[[nodiscard]] std::string filter_text(const Machine& machine);

}  // namespace drover::pool
