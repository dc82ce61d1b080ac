// pool/run/relocation_rule.hpp: whether to run a task on another device than that of its tensors.
#pragma once

#include <cstddef>

#include "drover/pool/worker_plan.hpp"

namespace drover::pool {

/// A low estimate of the bandwidth between devices, so that a task is moved only when it surely pays.
inline constexpr double kRelocationBytesPerSecond = 10e9;
/// Fixed cost of moving: allocations and submissions.
inline constexpr double kRelocationNanoseconds = 50'000;

/// A task that waits for a device, and the workers there.
struct RelocationFacts {
  std::size_t ahead = 0;    ///< other tasks that wait for those workers or run there
  std::size_t workers = 1;  ///< number of those workers
  double mean_run = 0;      ///< mean run time of tasks there in nanoseconds; 0: unknown
  std::size_t bytes = 0;    ///< of its tensors, to be copied
};

/// Whether moving the tensors is faster than waiting; false if the run time is unknown.
[[nodiscard]] bool is_worth_relocating(const RelocationFacts& facts) noexcept;

/// Whether a worker has a device of its own and can open tensors on all others but MIG instances.
[[nodiscard]] bool sees_other_devices(const WorkerPlan& plan, const WorkerPlanOptions& options) noexcept;

}  // namespace drover::pool
