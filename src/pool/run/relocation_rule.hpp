// pool/run/relocation_rule.hpp: whether a task is brought to another device than the one that holds its tensors.
#pragma once

#include <cstddef>

#include "drover/pool/worker_plan.hpp"

namespace drover {

/// Bytes that go from one device to another in a second, at least. Cautious: links between GPUs have several times as
/// much, and so a task stays at home unless moving it surely pays.
inline constexpr double kRelocationBytesPerSecond = 10e9;
/// What moving costs however little there is to move: blocks to take, copies to submit.
inline constexpr double kRelocationNanoseconds = 50'000;

/// What is known of a task that waits for a device, and of the workers there.
struct RelocationFacts {
  std::size_t ahead = 0;    ///< tasks that those workers have or will be given, without this one
  std::size_t workers = 1;  ///< how many they are
  double mean_run = 0;      ///< nanoseconds that tasks take there; 0: not known
  std::size_t bytes = 0;    ///< of its tensors that would have to be moved
};

/// Whether moving its tensors takes less time than waiting; never if it is not known how long tasks take.
[[nodiscard]] bool is_worth_relocating(const RelocationFacts& facts) noexcept;

/// Whether a worker has a device of its own and can open tensors on all others but MIG instances.
[[nodiscard]] bool sees_other_devices(const WorkerPlan& plan, const WorkerPlanOptions& options) noexcept;

}  // namespace drover
