// pool/plan/devices.hpp: which device each worker gets.
#pragma once

#include <string>
#include <vector>

#include "drover/pool/worker_plan.hpp"

namespace drover {

/// The device of one worker; nullptr for a worker without one.
using Chosen = const MachineDevice*;

/// One for each worker, in order. They point into `machine`. Throws as plan_workers.
[[nodiscard]] std::vector<Chosen> choose_devices(const WorkerPlanOptions& options, const Machine& machine);

/// For people: "cuda:0 (NVIDIA H200)".
[[nodiscard]] std::string describe(const MachineDevice& device);

/// For people: " (CUDA_VISIBLE_DEVICES=1 hides the others)"; empty if the variable is not set.
[[nodiscard]] std::string filter_text(const Machine& machine);

}  // namespace drover
