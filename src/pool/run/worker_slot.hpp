// pool/run/worker_slot.hpp: a worker as its pool sees it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/pool/worker_plan.hpp"
#include "drover/tensor/memory.hpp"
#include "pool/run/pending.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover::pool {

/// Tasks that a worker was sent in one message.
struct Batch {
  std::uint32_t sequence = 0;  ///< among the batches of its worker
  std::vector<TaskPtr> tasks;  ///< as sent
  std::uint16_t limit = 0;     ///< tasks from this index on were taken back
  std::uint16_t finished = 0;  ///< tasks before this index have returned
  bool is_tiny = false;        ///< whether its tasks are expected to be very short
};

/// The state of a slot's process.
enum class SlotState : std::uint8_t {
  absent,    ///< there is no process
  starting,  ///< the process is not ready yet
  ready,     ///< it takes tasks
  ending,    ///< it was asked to exit
};

/// A worker number of a pool and the process that currently has it.
struct WorkerSlot {
  std::size_t index = 0;
  WorkerPlan plan;
  BoardWorker* board = nullptr;
  SlotState state = SlotState::absent;
  bool is_wanted = true;              ///< whether a process that exits is replaced
  int failed_starts = 0;              ///< consecutive processes that exited before they were ready
  Clock::time_point start_at;         ///< earliest time of the next start
  Clock::time_point began;            ///< when `state` was entered
  std::optional<Queue> inbox;         ///< of this process
  std::uint32_t next_sequence = 1;    ///< of the next batch
  std::deque<Batch> batches;          ///< with tasks that have not returned
  std::size_t outstanding = 0;        ///< number of those tasks
  std::uint64_t done_by_process = 0;  ///< tasks that this process has returned
  std::vector<std::size_t> lanes;     ///< lanes of pending tasks that it serves
  std::size_t own_lane = 0;           ///< lane of tasks that only it may run
  std::uint64_t sampled_task = 0;     ///< the overdue task during which its stack was sampled
  std::string sampled_stack;          ///< that stack
  bool sees_others = false;           ///< whether it has a device and can open tensors on all others

  [[nodiscard]] std::uint32_t starts() const noexcept { return board->starts.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string place() const { return plan.device ? device_id(plan.device->info) : "cpu"; }
  /// Its device as the application numbers it; Place::cpu() without one.
  [[nodiscard]] Place device_place() const {
    return plan.device ? Place::device(plan.device->info.backend, plan.device->info.index) : Place::cpu();
  }
  [[nodiscard]] bool serves(std::size_t lane) const { return std::ranges::find(lanes, lane) != lanes.end(); }
  /// "worker-2 (process 71, cuda:0)".
  [[nodiscard]] std::string describe() const {
    const auto pid = std::to_string(board->pid.load(std::memory_order_relaxed));
    return plan.name + " (process " + pid + ", " + place() + ")";
  }
  /// Clears what belongs to the process, for the next one.
  void reset() {
    state = SlotState::absent;
    inbox.reset();
    next_sequence = 1;
    batches.clear();
    outstanding = done_by_process = sampled_task = 0;
    sampled_stack.clear();
  }
};

}  // namespace drover::pool
