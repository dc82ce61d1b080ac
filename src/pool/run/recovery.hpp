// pool/run/recovery.hpp: what happens to the tasks of a worker that died or could not run them.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "drover/pool/pool.hpp"
#include "pool/run/pool_state.hpp"

namespace drover::pool {

/// The error of a task that exceeded its timeout.
[[nodiscard]] std::exception_ptr timeout_error(const detail::TaskCall& task, const std::string& what);

/// Requeues or refuses the tasks that workers lost, and schedules replacements. Not synchronised: the pool's mutex
/// guards it together with the state.
class Recovery {
 public:
  /// Requires: all outlive this.
  Recovery(PoolState& state, const PoolOptions& options, std::string_view pool_name)
      : state_(state), options_(options), pool_name_(pool_name) {}

  /// Requires: every result that the worker sent has been received.
  void handle_death(WorkerSlot& slot, const std::string& how);
  /// Notes that the process of a wanted worker could not be started, or ended before it was ready. Either it is
  /// started again, at `slot.start_at`, or the worker is given up, and with the last one the pool, whose error then
  /// has the code that `how` names.
  void handle_failed_start(WorkerSlot& slot, const std::string& how);
  /// Makes a task pending again whose tensors a worker could not bring to its device, for workers that need no copy.
  void keep_home(const WorkerSlot& slot, const TaskPtr& task);

 private:
  void lose_begun(const WorkerSlot& slot, const TaskPtr& task, const std::string& how);
  void lose_waiting(const WorkerSlot& slot, const TaskPtr& task, const std::string& how);

  PoolState& state_;
  const PoolOptions& options_;
  std::string_view pool_name_;
};

}  // namespace drover::pool
