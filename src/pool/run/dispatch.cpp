// Which worker is sent which tasks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "pool/run/claim.hpp"
#include "pool/run/pool_core.hpp"

namespace drover {
namespace {

// A worker is given work for about so long ahead, so that it does not wait for more; the less, the better tasks are
// spread.
constexpr double kAheadNanoseconds = 500'000;
constexpr std::size_t kLeastAhead = 2;  // one to run and one to follow
constexpr std::size_t kMostAhead = 128;
// Below, a message costs more than the task.
constexpr double kTinyNanoseconds = 20'000;
// A worker that is at one task so long will not come to the next ones soon, however short they are.
constexpr double kStuckNanoseconds = 5'000'000;
constexpr std::size_t kMostBatchBytes = std::size_t{32} << 10U;

}  // namespace

std::size_t PoolCore::depth_for(const RegisteredTask& task) const {
  const double mean = mean_run_[task.index];
  if (mean <= 0) return kLeastAhead;
  return static_cast<std::size_t>(std::clamp(kAheadNanoseconds / mean, double{kLeastAhead}, double{kMostAhead}));
}

bool PoolCore::is_tiny(const RegisteredTask& task) const {
  const double mean = mean_run_[task.index];
  return mean > 0 && mean < kTinyNanoseconds;
}

// While tiny tasks are under way, results come in all the time: the collector then sends what has been submitted
// meanwhile, in batches. Sending each at once would cost more than running it.
bool PoolCore::is_collected_soon(const RegisteredTask& task) const {
  return options_.batching && is_tiny(task) && std::ranges::any_of(slots_, [](const auto& slot) {
           return !slot->batches.empty() && slot->batches.back().is_tiny;
         });
}

const TaskPtr* PoolCore::first_for(const WorkerSlot& slot) { return pending_.peek(slot.lanes); }

// Who has nothing is served first, with one batch, so that tasks do not wait behind another while somebody is idle.
void PoolCore::dispatch() {
  if (pending_.size() > 0) {
    for (auto& slot : slots_) {
      if (slot->outstanding == 0) refill(*slot, 1);
    }
    relocate();  // before others are sent ahead what somebody idle could begin now
    for (auto& slot : slots_) refill(*slot, kMostAhead);
  }
  rebalance();
}

void PoolCore::refill(WorkerSlot& slot, std::size_t most_batches) {
  if (slot.state != SlotState::ready) return;
  const auto ready = static_cast<std::size_t>(
      std::ranges::count_if(slots_, [](const auto& one) { return one->state == SlotState::ready; }));
  for (; most_batches > 0; --most_batches) {
    const TaskPtr* const first = first_for(slot);
    if (first == nullptr) return;
    const std::size_t depth = depth_for((*first)->task());
    if (slot.outstanding >= depth) return;
    // Not one by one: a batch when half of what is ahead is used up.
    if (options_.batching && slot.outstanding > depth / 2) return;
    const std::size_t share = (pending_.size() + ready - 1) / ready;
    const std::size_t most = options_.batching ? std::clamp<std::size_t>(share, 1, depth - slot.outstanding) : 1;
    if (!send_batch(slot, slot.lanes, most)) return;
  }
}

// False if the task could not be added: it stays, unless it can never be sent.
bool PoolCore::add_task(const WorkerSlot& slot, std::span<const std::size_t> lanes, Batch& batch) {
  const TaskPtr* const first = pending_.peek(lanes);
  if (first == nullptr) return false;
  const detail::TaskCall& task = **first;
  const bool fits = batch.tasks.empty() || (writer_.bytes().size() + task.arguments().size() <= kMostBatchBytes &&
                                            writer_.leases().size() + task.tensors().size() <= kMostTaskTensors);
  if (!fits) return false;
  TaskPtr taken = pending_.take();
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
    writer_.cut(before);  // of a tensor whose contents are lost, say
    refuse(std::move(taken), std::current_exception());
    return true;
  }
  batch.tasks.push_back(std::move(taken));
  return true;
}

bool PoolCore::send_batch(WorkerSlot& slot, std::span<const std::size_t> lanes, std::size_t most) {
  Batch batch{.sequence = slot.next_sequence};
  writer_.clear();
  const std::size_t head = writer_.add(BatchHeader{});
  while (batch.tasks.size() < most && add_task(slot, lanes, batch)) {
  }
  if (batch.tasks.empty()) return true;
  if (!slot.inbox) return false;  // never of one that is ready
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
    refuse(std::move(batch.tasks.front()), error);  // it would fail again, and all others would wait behind it
    return true;
  }
  if (result != PutResult::put) {
    for (auto& task : batch.tasks) pending_.push_again(std::move(task));
    return error ? send_batch(slot, lanes, 1) : false;
  }
  const auto has_timeout = [](const TaskPtr& task) { return task->options().timeout.count() > 0; };
  if (std::ranges::any_of(batch.tasks, has_timeout)) wake_warden();  // who looks at the time
  ++slot.next_sequence;
  slot.outstanding += batch.tasks.size();
  slot.batches.push_back(std::move(batch));
  last_move_ = Clock::now();
  return true;
}

// What a worker has not begun comes back, to be sent to whoever is free.
std::size_t PoolCore::take_back_from(WorkerSlot& slot) {
  if (!slot.inbox || slot.batches.empty()) return 0;
  const auto cut = [&](Batch& batch, std::uint16_t limit) DROVER_NO_THREAD_ANALYSIS {  // with the mutex held
    for (std::size_t i = limit; i < batch.limit; ++i) pending_.push_again(batch.tasks[i]);
    slot.outstanding -= batch.limit - limit;
    const std::size_t count = batch.limit - limit;
    batch.tasks.resize(limit);
    batch.limit = limit;
    return count;
  };
  const std::uint32_t current = set_fence(slot.board->fence, slot.board->claim, slot.next_sequence - 1);
  std::size_t count = 0;
  for (auto& batch : slot.batches) {
    const std::uint16_t limit =
        batch.sequence > current ? 0 : take_back(slot.board->claim, batch.sequence, batch.limit, 0);
    if (limit < batch.limit) count += cut(batch, limit);
  }
  try {
    Message message;
    while (slot.inbox->try_get(message) == GetResult::got) {
    }  // so that the tensors in there are not held until the worker comes to them
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());  // the session is over, say
  }
  std::erase_if(slot.batches, [](const Batch& batch) { return batch.finished == batch.limit; });
  return count;
}

// Whether `idle` may have what waits in another worker: it is for both of them, or a single one, worth being brought
// from that device. Of more than one it could be another that comes to the front when they are taken back.
bool PoolCore::may_take_over(const WorkerSlot& idle, const WorkerSlot& from) const {
  const TaskPtr& last = from.batches.back().tasks.back();
  if (last == nullptr) return false;
  if (idle.serves(last->lane)) return true;
  const bool is_alone = from.outstanding == kLeastAhead && pending_.size(last->lane) == 0;
  return is_alone && from.serves(last->lane) && is_worth_bringing(*last, idle);
}

// Of those that have tasks waiting which `idle` may take, the one with most. Nobody if moving takes longer than that.
WorkerSlot* PoolCore::find_overburdened(const WorkerSlot& idle) {
  WorkerSlot* found = nullptr;
  for (const auto& slot : slots_) {
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

// When somebody is idle and nothing is pending for it, tasks that wait behind another in a worker are spread anew.
void PoolCore::rebalance() {
  for (auto& idle : slots_) {
    if (idle->state != SlotState::ready || idle->outstanding > 0 || first_for(*idle) != nullptr) continue;
    WorkerSlot* const slot = find_overburdened(*idle);
    if (slot == nullptr) continue;
    statistics_.moved += take_back_from(*slot);
    refill(*idle, 1);
    relocate();
    refill(*slot, kMostAhead);
  }
}

void PoolCore::tell_to_end(WorkerSlot& slot) {
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

}  // namespace drover
