// Tasks for idle workers of other devices than the one that holds their tensors.
#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "pool/run/pool_core.hpp"
#include "pool/run/relocation_rule.hpp"

namespace drover {
namespace {

// Those that the worker would have to copy. Tensors of the host are nearby everywhere.
std::size_t bytes_to_move(const detail::TaskCall& task, const Place& place) {
  std::size_t bytes = 0;
  for (const auto& tensor : task.tensors()) {
    if (const Place here = tensor.place(); here.is_device && here != place) bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace

bool PoolCore::is_worth_bringing(const detail::TaskCall& task, const WorkerSlot& idle) const {
  const TaskOptions& options = task.options();
  if (!idle.sees_others || !options.may_relocate || options.worker || task.is_kept_home) return false;
  RelocationFacts facts{.ahead = pending_.size(task.lane),
                        .workers = 0,
                        .mean_run = lane_mean_[task.lane],
                        .bytes = bytes_to_move(task, idle.device_place())};
  for (const auto& slot : slots_) {
    if (!slot->is_wanted || !slot->serves(task.lane)) continue;
    if (!slot->sees_others) return false;  // a MIG instance, which nobody else sees
    ++facts.workers;
    facts.ahead += slot->outstanding;
  }
  facts.ahead -= std::min<std::size_t>(facts.ahead, 1);  // the task itself, which is pending or in one of those
  return is_worth_relocating(facts);
}

// The lane whose first task is worth being brought to `idle`; of several, that of the task with the highest priority,
// and then of who came first. kAnybody if there is none.
std::size_t PoolCore::find_relocation(const WorkerSlot& idle) {
  std::vector<std::size_t> lanes;
  for (const auto& [place, lane] : device_lanes_) {
    const TaskPtr* const first = pending_.peek(std::array{lane});
    if (first != nullptr && !idle.serves(lane) && is_worth_bringing(**first, idle)) lanes.push_back(lane);
  }
  const TaskPtr* const best = pending_.peek(lanes);
  return best == nullptr ? PendingTasks::kAnybody : (*best)->lane;
}

void PoolCore::relocate() {
  if (device_lanes_.size() < 2) return;
  for (auto& idle : slots_) {
    const bool is_idle = idle->state == SlotState::ready && idle->outstanding == 0;
    if (!is_idle || !idle->sees_others || first_for(*idle) != nullptr) continue;
    const std::size_t lane = find_relocation(*idle);
    if (lane != PendingTasks::kAnybody) static_cast<void>(send_batch(*idle, std::array{lane}, 1));
  }
}

// The worker had no memory for the tensors, say. The task has not begun, and waits for those who need no copy.
void PoolCore::keep_home(const WorkerSlot& slot, const TaskPtr& task) {
  task->is_kept_home = true;
  if (task->has_timed_out) {
    refuse(task, timeout_error(*task, slot.describe() + " could not bring its tensors to its device"));
    return;
  }
  if (task->is_cancel_asked) {
    refuse(task, std::make_exception_ptr(
                     Error(Errc::cancelled, fmt::format("{} was cancelled before it began", task->describe_call()))));
    return;
  }
  pending_.push_again(task);
  refuse_unserved();
  if (is_ending_ || broken_) cancel_pending("the pool was ended before it began");
}

}  // namespace drover
