// pool/run/worker_slot.hpp: a worker as its pool knows it.
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

namespace drover {

/// Tasks that went to a worker in one message.
struct Batch {
  std::uint32_t sequence = 0;  ///< of the batches of its worker
  std::vector<TaskPtr> tasks;  ///< as sent
  std::uint16_t limit = 0;     ///< those from here on were taken back
  std::uint16_t finished = 0;  ///< those before have come back
  bool is_tiny = false;        ///< whether its tasks are known to take next to no time
};

/// How a worker is.
enum class SlotState : std::uint8_t {
  absent,    ///< there is no process
  starting,  ///< there is one, which is not ready
  ready,     ///< it takes tasks
  ending,    ///< it was told to end
};

/// A number of a pool, and the process that has it now.
struct WorkerSlot {
  std::size_t index = 0;
  WorkerPlan plan;
  BoardWorker* board = nullptr;
  SlotState state = SlotState::absent;
  bool is_wanted = true;              ///< whether a process that ends is replaced
  int failed_starts = 0;              ///< processes in a row that ended before they were ready
  Clock::time_point start_at;         ///< not before that
  Clock::time_point began;            ///< when `state` began
  std::optional<Queue> inbox;         ///< of this process
  std::uint32_t next_sequence = 1;    ///< of batches
  std::deque<Batch> batches;          ///< with tasks that have not come back
  std::size_t outstanding = 0;        ///< such tasks
  std::uint64_t done_by_process = 0;  ///< tasks that came back from this process
  std::vector<std::size_t> lanes;     ///< of pending tasks that it may take
  std::size_t own_lane = 0;           ///< of tasks that only it may take
  std::uint64_t seen_in = 0;          ///< the task in which it was asked where it is, before it was killed
  std::string seen_at;                ///< what it said
  bool sees_others = false;           ///< whether it can open tensors on all devices, and has one of its own

  [[nodiscard]] std::uint32_t starts() const noexcept { return board->starts.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string place() const { return plan.device ? device_id(plan.device->info) : "cpu"; }
  /// Its device as the application numbers it; Place::cpu() without one.
  [[nodiscard]] Place device_place() const {
    return plan.device ? Place::device(plan.device->info.backend, plan.device->info.index) : Place::cpu();
  }
  /// Whether tasks of this lane are for it.
  [[nodiscard]] bool serves(std::size_t lane) const { return std::ranges::find(lanes, lane) != lanes.end(); }
  /// "worker-2 (process 71, cuda:0)".
  [[nodiscard]] std::string describe() const;
  /// Forgets the process: for the next one.
  void reset();
};

}  // namespace drover
