// pool/run/scheduler.hpp: decides which worker runs which task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drover/pool/pool.hpp"
#include "pool/run/pool_state.hpp"
#include "pool/run/wire.hpp"

namespace drover::pool {

/// Sends tasks to workers and takes them back. Not synchronised: the pool's mutex guards it together with the state.
class Scheduler {
 public:
  /// Requires: both outlive this. Writes to the eventfd `wake` when a task with a timeout is sent.
  Scheduler(PoolState& state, const PoolOptions& options, int wake);

  /// Sends pending tasks to workers with room for them, and moves tasks from busy workers to idle ones.
  void dispatch();
  /// Whether the next results cause a dispatch soon enough for this task.
  [[nodiscard]] bool is_collected_soon(const RegisteredTask& task) const;
  /// Makes the tasks that a worker has not begun pending again. Returns how many.
  std::size_t take_back_from(WorkerSlot& slot);
  /// Lets a worker finish what it runs and exit.
  void stop(WorkerSlot& slot);
  /// Cancels every task that has not begun.
  void cancel_pending(const char* why);
  /// Takes no more tasks, cancels those that have not begun, and stops all workers, which are killed at `kill_at`.
  void begin_ending(Clock::time_point kill_at);
  /// Records how long a task ran in a worker.
  void learn_time(const WorkerSlot& slot, const detail::TaskCall& task, std::uint64_t nanoseconds);

 private:
  void refill(WorkerSlot& slot, std::size_t most_batches);
  bool send_batch(WorkerSlot& slot, std::span<const std::size_t> lanes, std::size_t most);
  bool add_task(const WorkerSlot& slot, std::span<const std::size_t> lanes, Batch& batch);
  [[nodiscard]] std::size_t room_until_recycled(const WorkerSlot& slot) const;
  [[nodiscard]] bool is_tiny(const RegisteredTask& task) const;
  [[nodiscard]] std::size_t depth_for(const RegisteredTask& task) const;
  std::size_t cut(WorkerSlot& slot, Batch& batch, std::uint16_t limit);

  void rebalance();
  [[nodiscard]] bool may_take_over(const WorkerSlot& idle, const WorkerSlot& from) const;
  [[nodiscard]] WorkerSlot* find_overburdened(const WorkerSlot& idle);

  void relocate();
  [[nodiscard]] std::size_t find_relocation(const WorkerSlot& idle);
  [[nodiscard]] bool is_worth_relocating_to(const WorkerSlot& idle, const detail::TaskCall& task) const;

  PoolState& state_;
  const PoolOptions& options_;
  int wake_;
  WireWriter writer_;
  std::vector<double> mean_run_;   // nanoseconds, by task index; 0: unknown
  std::vector<double> lane_mean_;  // the same by lane, of tasks that were not relocated
};

}  // namespace drover::pool
