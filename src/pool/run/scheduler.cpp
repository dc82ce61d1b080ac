#include "pool/run/scheduler.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "drover/base/log.hpp"
#include "pool/run/claim.hpp"
#include "pool/run/relocation_rule.hpp"
#include "pool/run/task_table.hpp"

namespace drover::pool {
namespace {

// Work queued ahead in each worker, so that it does not wait for messages. Less of it spreads tasks better.
constexpr double kAheadNanoseconds = 500'000;
constexpr std::size_t kLeastAhead = 2;  // one to run and one to follow
constexpr std::size_t kMostAhead = 128;
constexpr double kTinyNanoseconds = 20'000;      // below this a message costs more than the task
constexpr double kStuckNanoseconds = 5'000'000;  // a worker this long in one task is not expected to reach the next
constexpr std::size_t kMostBatchBytes = std::size_t{32} << 10U;
constexpr std::size_t kMostBatchTensors = 32;  // unless they belong to one task
constexpr double kNewShare = 0.2;              // weight of the last run in a mean

// Host tensors need no copy.
std::size_t bytes_to_move(const detail::TaskCall& task, const Place& place) {
  std::size_t bytes = 0;
  for (const auto& tensor : task.tensors()) {
    if (const Place here = tensor.place(); here.is_device && here != place) bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace

Scheduler::Scheduler(PoolState& state, const PoolOptions& options, int wake)
    : state_(state), options_(options), wake_(wake), mean_run_(TaskTable::instance().all().size(), 0.0) {}

std::size_t Scheduler::depth_for(const RegisteredTask& task) const {
  const double mean = mean_run_[task.index];
  if (mean <= 0) return kLeastAhead;
  return static_cast<std::size_t>(std::clamp(kAheadNanoseconds / mean, double{kLeastAhead}, double{kMostAhead}));
}

bool Scheduler::is_tiny(const RegisteredTask& task) const {
  const double mean = mean_run_[task.index];
  return mean > 0 && mean < kTinyNanoseconds;
}

// While tiny tasks are in flight, results arrive all the time, and the collector sends new tasks in batches. Sending
// each one immediately would cost more than running it.
bool Scheduler::is_collected_soon(const RegisteredTask& task) const {
  return options_.batching && is_tiny(task) && std::ranges::any_of(state_.slots, [](const auto& slot) {
           return !slot->batches.empty() && slot->batches.back().is_tiny;
         });
}

// Idle workers come first, with one batch each, so that no task waits behind another while a worker is idle.
void Scheduler::dispatch() {
  if (state_.pending.size() > 0) {
    for (auto& slot : state_.slots) {
      if (slot->outstanding == 0) refill(*slot, 1);
    }
    relocate();  // before busy workers get what an idle one could begin now
    for (auto& slot : state_.slots) refill(*slot, kMostAhead);
  }
  rebalance();
}

// A process is sent no task that it must leave to its successor, not even ahead: it would run it.
std::size_t Scheduler::room_until_recycled(const WorkerSlot& slot) const {
  if (options_.recycle_after == 0) return kMostAhead;
  const std::uint64_t used = slot.done_by_process + slot.outstanding;
  return static_cast<std::size_t>(options_.recycle_after - std::min(used, options_.recycle_after));
}

void Scheduler::refill(WorkerSlot& slot, std::size_t most_batches) {
  if (slot.state != SlotState::ready) return;
  const auto ready = static_cast<std::size_t>(
      std::ranges::count_if(state_.slots, [](const auto& one) { return one->state == SlotState::ready; }));
  for (; most_batches > 0; --most_batches) {
    const TaskPtr* const first = state_.pending.peek(slot.lanes);
    if (first == nullptr) return;
    const std::size_t depth = depth_for((*first)->task());
    if (slot.outstanding >= depth) return;
    // Refill in batches, when half of the work ahead is done.
    if (options_.batching && slot.outstanding > depth / 2) return;
    const std::size_t room = room_until_recycled(slot);
    if (room == 0) return;
    const std::size_t share = (state_.pending.size() + ready - 1) / ready;
    const std::size_t most = options_.batching ? std::clamp<std::size_t>(share, 1, depth - slot.outstanding) : 1;
    if (!send_batch(slot, slot.lanes, std::min(most, room))) return;
  }
}

// Returns false if the task does not fit into this batch; it stays pending. A task that can never be sent is refused.
bool Scheduler::add_task(const WorkerSlot& slot, std::span<const std::size_t> lanes, Batch& batch) {
  const TaskPtr* const first = state_.pending.peek(lanes);
  if (first == nullptr) return false;
  const detail::TaskCall& task = **first;
  const bool fits = batch.tasks.empty() || (writer_.bytes().size() + task.arguments().size() <= kMostBatchBytes &&
                                            writer_.leases().size() + task.tensors().size() <= kMostBatchTensors);
  if (!fits) return false;
  TaskPtr taken = state_.pending.take();
  const TaskHeader header{.number = taken->number,
                          .task = taken->task().index,
                          .bytes = static_cast<std::uint32_t>(taken->arguments().size()),
                          .tensors = static_cast<std::uint32_t>(taken->tensors().size()),
                          .relocates = slot.serves(taken->lane) ? 0U : 1U};
  const std::size_t before = writer_.bytes().size();
  try {
    writer_.add(header);
    writer_.append(std::as_bytes(std::span(taken->arguments())));
    writer_.append(taken->tensors());
  } catch (...) {
    writer_.cut(before);  // for example, the contents of a tensor are lost
    state_.refuse(std::move(taken), std::current_exception());
    return true;
  }
  batch.tasks.push_back(std::move(taken));
  return true;
}

bool Scheduler::send_batch(WorkerSlot& slot, std::span<const std::size_t> lanes, std::size_t most) {
  Batch batch{.sequence = slot.next_sequence};
  writer_.clear();
  const std::size_t head = writer_.add(BatchHeader{});
  while (batch.tasks.size() < most && add_task(slot, lanes, batch)) {
  }
  if (batch.tasks.empty()) return true;
  if (!slot.inbox) return false;  // does not happen to a ready worker
  batch.limit = static_cast<std::uint16_t>(batch.tasks.size());
  batch.is_tiny = is_tiny(batch.tasks.back()->task());
  writer_.set(head, BatchHeader{.sequence = batch.sequence, .count = batch.limit});
  PutResult result = PutResult::peer_lost;
  std::exception_ptr error;
  try {
    result = slot.inbox->put(writer_.bytes(), writer_.leases(), Deadline::after({}));
  } catch (...) {
    error = std::current_exception();
  }
  writer_.clear();
  if (error && batch.tasks.size() == 1) {
    state_.refuse(std::move(batch.tasks.front()), error);  // a retry would fail again and block all other tasks
    return true;
  }
  if (result != PutResult::put) {
    for (auto& task : batch.tasks) state_.pending.push_again(std::move(task));
    return error ? send_batch(slot, lanes, 1) : false;
  }
  const auto has_timeout = [](const TaskPtr& task) { return task->options().timeout.count() > 0; };
  if (std::ranges::any_of(batch.tasks, has_timeout)) static_cast<void>(::eventfd_write(wake_, 1));
  ++slot.next_sequence;
  slot.outstanding += batch.tasks.size();
  slot.batches.push_back(std::move(batch));
  state_.last_move = Clock::now();
  return true;
}

std::size_t Scheduler::cut(WorkerSlot& slot, Batch& batch, std::uint16_t limit) {
  const std::size_t count = batch.limit - limit;
  for (std::size_t i = limit; i < batch.limit; ++i) state_.pending.push_again(batch.tasks[i]);
  slot.outstanding -= count;
  batch.tasks.resize(limit);
  batch.limit = limit;
  return count;
}

std::size_t Scheduler::take_back_from(WorkerSlot& slot) {
  if (!slot.inbox || slot.batches.empty()) return 0;
  const std::uint32_t current = set_fence(slot.board->fence, slot.board->claim, slot.next_sequence - 1);
  std::size_t count = 0;
  for (auto& batch : slot.batches) {
    const std::uint16_t limit =
        batch.sequence > current ? 0 : take_back(slot.board->claim, batch.sequence, batch.limit, 0);
    if (limit < batch.limit) count += cut(slot, batch, limit);
  }
  try {
    Message message;
    while (slot.inbox->try_get(message) == GetResult::got) {
    }  // otherwise the tensors in there would be held until the worker reads them
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());  // for example, the session is over
  }
  std::erase_if(slot.batches, [](const Batch& batch) { return batch.finished == batch.limit; });
  return count;
}

// Whether `idle` may run what waits in `from`: tasks that both serve, or a single task worth relocating. With
// several, a different task might be first in the lane once they are taken back.
bool Scheduler::may_take_over(const WorkerSlot& idle, const WorkerSlot& from) const {
  const TaskPtr& last = from.batches.back().tasks.back();
  if (last == nullptr) return false;
  if (idle.serves(last->lane)) return true;
  const bool is_alone = from.outstanding == kLeastAhead && state_.pending.size(last->lane) == 0;
  return is_alone && from.serves(last->lane) && is_worth_relocating_to(idle, *last);
}

// The worker with the most tasks that `idle` may take over; nullptr if moving them takes longer than waiting.
WorkerSlot* Scheduler::find_overburdened(const WorkerSlot& idle) {
  WorkerSlot* found = nullptr;
  for (const auto& slot : state_.slots) {
    if (slot->outstanding < kLeastAhead || slot->batches.empty()) continue;
    if (!may_take_over(idle, *slot)) continue;
    const TaskPtr& last = slot->batches.back().tasks.back();
    const double waits = mean_run_[last->task().index] * static_cast<double>(slot->outstanding);
    const auto running = static_cast<double>(board_now() - slot->board->since.load(std::memory_order_relaxed));
    const bool is_short = waits > 0 && waits < kAheadNanoseconds;
    if (running < (is_short ? kStuckNanoseconds : kAheadNanoseconds / 2)) continue;
    if (found == nullptr || slot->outstanding > found->outstanding) found = slot.get();
  }
  return found;
}

// Redistributes tasks that wait in a busy worker when another is idle and nothing is pending for it.
void Scheduler::rebalance() {
  for (auto& idle : state_.slots) {
    if (idle->state != SlotState::ready || idle->outstanding > 0) continue;
    if (state_.pending.peek(idle->lanes) != nullptr) continue;
    WorkerSlot* const slot = find_overburdened(*idle);
    if (slot == nullptr) continue;
    state_.statistics.moved += take_back_from(*slot);
    refill(*idle, 1);
    relocate();
    refill(*slot, kMostAhead);
  }
}

void Scheduler::stop(WorkerSlot& slot) {
  take_back_from(slot);
  if (slot.inbox && slot.state != SlotState::ending) {
    try {
      slot.inbox->close();
    } catch (const std::exception& error) {
      log(LogLevel::debug, error.what());
    }
  }
  if (slot.state == SlotState::ready || slot.state == SlotState::starting) {
    slot.state = SlotState::ending;
    slot.began = Clock::now();
  }
}

bool Scheduler::is_worth_relocating_to(const WorkerSlot& idle, const detail::TaskCall& task) const {
  const TaskOptions& options = task.options();
  if (!idle.sees_others || !options.may_relocate || options.worker || task.is_kept_home) return false;
  RelocationFacts facts{.ahead = state_.pending.size(task.lane),
                        .workers = 0,
                        .mean_run = task.lane < lane_mean_.size() ? lane_mean_[task.lane] : 0.0,
                        .bytes = bytes_to_move(task, idle.device_place())};
  for (const auto& slot : state_.slots) {
    if (!slot->is_wanted || !slot->serves(task.lane)) continue;
    if (!slot->sees_others) return false;  // a MIG instance, which no other worker sees
    ++facts.workers;
    facts.ahead += slot->outstanding;
  }
  facts.ahead -= std::min<std::size_t>(facts.ahead, 1);  // the task itself, which is counted above
  return is_worth_relocating(facts);
}

// The lane whose first task is worth relocating to `idle`: of several, that of the task with the highest priority,
// then the oldest. kAnyWorker if there is none.
std::size_t Scheduler::find_relocation(const WorkerSlot& idle) {
  std::vector<std::size_t> lanes;
  for (const auto& [place, lane] : state_.device_lanes) {
    const TaskPtr* const first = state_.pending.peek(std::array{lane});
    if (first != nullptr && !idle.serves(lane) && is_worth_relocating_to(idle, **first)) lanes.push_back(lane);
  }
  const TaskPtr* const best = state_.pending.peek(lanes);
  return best == nullptr ? PendingTasks::kAnyWorker : (*best)->lane;
}

void Scheduler::relocate() {
  if (state_.device_lanes.size() < 2) return;
  for (auto& idle : state_.slots) {
    const bool is_idle = idle->state == SlotState::ready && idle->outstanding == 0;
    if (!is_idle || !idle->sees_others || state_.pending.peek(idle->lanes) != nullptr) continue;
    const std::size_t lane = find_relocation(*idle);
    if (lane != PendingTasks::kAnyWorker) static_cast<void>(send_batch(*idle, std::array{lane}, 1));
  }
}

void Scheduler::cancel_pending(const char* why) {
  for (auto& slot : state_.slots) take_back_from(*slot);
  for (auto& task : state_.pending.take_all()) state_.refuse_cancelled(std::move(task), why);
}

void Scheduler::begin_ending(Clock::time_point kill_at) {
  if (state_.closed_why.empty()) state_.closed_why = "the pool has ended";
  state_.is_ending = true;
  state_.kill_at = std::min(state_.kill_at, kill_at);
  for (auto& slot : state_.slots) {
    slot->is_wanted = false;
    stop(*slot);
  }
  cancel_pending(kEndedBeforeItBegan);
}

void Scheduler::learn_time(const WorkerSlot& slot, const detail::TaskCall& task, std::uint64_t nanoseconds) {
  const auto took = static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1));
  const auto learn = [&](double& mean) { mean = mean == 0 ? took : (mean * (1 - kNewShare)) + (took * kNewShare); };
  learn(mean_run_[task.task().index]);
  if (!slot.serves(task.lane)) return;
  if (lane_mean_.size() <= task.lane) lane_mean_.resize(task.lane + 1, 0.0);
  learn(lane_mean_[task.lane]);
}

}  // namespace drover::pool
