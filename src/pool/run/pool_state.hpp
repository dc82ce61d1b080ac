// pool/run/pool_state.hpp: the workers of a pool and its unfinished tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/pool/pool.hpp"
#include "pool/run/pending.hpp"
#include "pool/run/worker_slot.hpp"
#include "pool/watch/board.hpp"

namespace drover::pool {

/// Why tasks of an ended pool are cancelled.
inline constexpr const char* kEndedBeforeItBegan = "the pool was ended before it began";

/// A task that will not run, and the error its future gets once the mutex is free.
struct Refusal {
  TaskPtr task;
  std::exception_ptr error;
};
using Refusals = std::vector<Refusal>;

/// What the mutex of a pool guards, apart from the scheduler. A task is in exactly one place: pending, in a batch of
/// a slot, or done. Not synchronised.
struct PoolState {
  /// Adds slots from these plans until there are `count`. Throws `Errc::limit_reached`.
  void add_slots(const std::vector<WorkerPlan>& plans, std::size_t count, const WorkerPlanOptions& options,
                 const OwnBoard& board);
  /// Sets the lane of a task: its worker's, or that of the device which holds most of its bytes. Throws
  /// `Errc::invalid_argument` if the pool has no such worker or device.
  void choose_lane(detail::TaskCall& task) const;
  /// Whether some worker runs the tasks of this lane.
  [[nodiscard]] bool is_served(std::size_t lane) const;
  /// Whether some worker will run this task if it becomes pending again.
  [[nodiscard]] bool can_requeue(const detail::TaskCall& task) const;
  /// Throws if the pool takes no more tasks.
  void check_open() const;

  void refuse(TaskPtr task, std::exception_ptr error);
  /// Refuses pending tasks whose worker was removed or given up.
  void refuse_unserved();
  /// Refuses a task that was cancelled, or with the reason why the pool broke.
  void refuse_cancelled(TaskPtr task, const char* why);
  [[nodiscard]] Refusals take_refusals();

  /// Tasks that workers have.
  [[nodiscard]] std::size_t in_flight() const;
  void update(Board& board) const;

  std::vector<std::unique_ptr<WorkerSlot>> slots;
  std::map<Place, std::size_t> device_lanes;
  PendingTasks pending;
  Refusals refusals;
  std::uint64_t last_number = 0;
  std::uint64_t unfinished = 0;  // tasks whose futures are not done
  PoolStatistics statistics;
  Clock::time_point last_move = Clock::now();
  std::exception_ptr broken;
  std::string closed_why;  // empty while the pool takes tasks
  bool is_ending = false;
  bool is_asleep = false;  // workers have ended because there was nothing to do
  Clock::time_point kill_at = Clock::time_point::max();
};

}  // namespace drover::pool
