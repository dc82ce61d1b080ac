#include "pool/run/worker_slot.hpp"

#include <fmt/format.h>

namespace drover {

std::string WorkerSlot::describe() const {
  return fmt::format("{} (process {}, {})", plan.name, board->pid.load(std::memory_order_relaxed), place());
}

void WorkerSlot::reset() {
  state = SlotState::absent;
  inbox.reset();
  next_sequence = 1;
  batches.clear();
  outstanding = 0;
  done_by_process = 0;
  sampled_task = 0;
  sampled_stack.clear();
}

}  // namespace drover
