#include "drover/pool/worker_plan.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "pool/plan/admission.hpp"
#include "pool/plan/cpus.hpp"
#include "pool/plan/devices.hpp"
#include "pool/plan/environment.hpp"

namespace drover {
namespace {

void check_numbers(const WorkerPlanOptions& options) {
  require(options.threads >= 0, "the number of threads is negative",
          "set threads to 0 for a share of the cores, or to the number for each worker");
  const bool is_share = options.mps_percentage >= 0 && options.mps_percentage <= 100;
  require(is_share, "mps_percentage is not between 0 and 100", "set it to 0 for no limit, or to 1 to 100");
  require(options.mps || options.mps_percentage == 0, "mps_percentage is set without mps",
          "set mps too, or do not set mps_percentage");
}

// A worker sees its own GPU first, and all emulated devices in their order.
PlannedDevice planned(const MachineDevice& device) {
  return {.info = device.info, .worker_index = device.info.backend == BackendKind::cuda ? 0 : device.info.index};
}

// Callers need not know about hyperthreads.
Machine completed(Machine machine) {
  if (machine.cores.empty()) {
    for (const int cpu : machine.cpus) machine.cores.push_back({cpu});
  }
  return machine;
}

}  // namespace

std::vector<WorkerPlan> plan_workers(const WorkerPlanOptions& options, const Machine& machine_seen) {
  check_numbers(options);
  const Machine machine = completed(machine_seen);
  const auto chosen = pool::choose_devices(options, machine);
  pool::admit(options, machine, chosen);
  auto shares = pool::share_cpus(options, machine, chosen);
  std::vector<WorkerPlan> plans(chosen.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    auto& plan = plans[i];
    plan.name = fmt::format("worker-{}", i);
    if (chosen[i] != nullptr) {
      plan.device = planned(*chosen[i]);
      plan.memory_budget = options.memory_budget;
    }
    plan.placement.cpus = std::move(shares[i].cpus);
    plan.threads = shares[i].threads;
    pool::fill_environment(plan, options, machine, static_cast<int>(std::ranges::count(chosen, chosen[i])));
  }
  return plans;
}

}  // namespace drover
