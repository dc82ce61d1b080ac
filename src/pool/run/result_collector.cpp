#include "pool/run/result_collector.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/wake/bell.hpp"
#include "pool/run/callback_thread.hpp"
#include "pool/values/remote_failure.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kMostAtOnce = 256;
constexpr QueueOptions kResults{.capacity = 4096, .bytes = std::uint64_t{64} << 20U, .waits_alone = true};
constexpr std::chrono::milliseconds kRebalanceEvery{2};
constexpr std::chrono::milliseconds kLongestWait{250};
constexpr std::size_t kManyTiny = 64;
constexpr std::chrono::microseconds kGather{40};

// Without this pause the collector would wake for every few results and take the mutex from submitters: with 16 cores
// that cost two thirds of the throughput. It does not check the queue meanwhile, which would take its cache lines
// from the workers.
void gather() {
  for (const auto end = Clock::now() + kGather; Clock::now() < end;) {
    for (int pause = 0; pause < ipc::kLongestSpinGap; ++pause) ipc::relax();
  }
}

}  // namespace

ResultCollector::ResultCollector(PoolShared& pool) : pool_(pool), results_(pool.session, kResults) {}

void ResultCollector::stop() noexcept {
  try {
    const ResultHeader last{.slot = static_cast<std::uint16_t>(kMostBoardWorkers), .kind = ResultKind::death};
    const auto bytes = std::as_bytes(std::span(&last, 1));
    if (results_.put(bytes, Deadline::after(std::chrono::seconds(1))) == PutResult::put) return;
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());  // the session is over, which ends the thread too
  }
  is_stopping_ = true;
}

void ResultCollector::put_death(std::size_t slot, std::uint32_t starts, const std::string& how) {
  const ResultHeader header{.starts = starts, .slot = static_cast<std::uint16_t>(slot), .kind = ResultKind::death};
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  message += how;
  static_cast<void>(results_.put(std::string_view(message)));
}

void ResultCollector::run() noexcept {
  const detail::CallbackThread here;
  std::vector<Message> messages;
  try {
    while (!is_stopping_ && collect_some(messages)) {
    }
  } catch (...) {
    pool_.mark_broken(std::current_exception());
  }
  refuse_rest();
}

// No more results will come for the tasks that workers still have.
void ResultCollector::refuse_rest() {
  Refusals refused;
  {
    const MutexLock lock(pool_.mutex);
    PoolState& state = pool_.state;
    std::vector<TaskPtr> left = state.pending.take_all();
    for (auto& slot : state.slots) {
      for (auto& batch : slot->batches) {
        for (std::size_t i = batch.finished; i < batch.limit; ++i) left.push_back(batch.tasks[i]);
      }
      slot->batches.clear();
      slot->outstanding = 0;
    }
    for (auto& task : left) state.refuse_cancelled(std::move(task), "the pool was ended");
    refused = state.take_refusals();
    state.update(pool_.board.board());
  }
  pool_.complete(refused);
}

// Returns soon, to rebalance, while one worker is idle and another has tasks waiting.
ResultCollector::WaitPlan ResultCollector::plan_wait() {
  const MutexLock lock(pool_.mutex);
  bool is_idle = false;
  bool is_behind = false;
  std::size_t tiny = 0;
  for (const auto& slot : pool_.state.slots) {
    is_idle |= slot->state == SlotState::ready && slot->outstanding == 0;
    is_behind |= slot->outstanding > 1;
    if (!slot->batches.empty() && slot->batches.back().is_tiny) tiny += slot->outstanding;
  }
  const bool is_unbalanced = is_idle && (is_behind || pool_.state.pending.size() > 0);
  return {.patience = is_unbalanced ? std::chrono::nanoseconds(kRebalanceEvery) : kLongestWait,
          .gathers = !is_idle && tiny >= kManyTiny && ipc::has_cores_to_spare()};
}

bool ResultCollector::collect_some(std::vector<Message>& messages) {
  const WaitPlan plan = plan_wait();
  if (plan.gathers) gather();
  const GetResult result = results_.get_many(messages, kMostAtOnce, Deadline::after(plan.patience));
  if (result != GetResult::got) messages.clear();
  if (result == GetResult::closed) return false;
  std::vector<Arrival> arrivals;
  Refusals refused;
  std::exception_ptr failure;
  {
    const MutexLock lock(pool_.mutex);
    PoolState& state = pool_.state;
    if (!messages.empty()) state.last_move = Clock::now();
    try {
      for (auto& message : messages) match(message, arrivals);
      pool_.scheduler.dispatch();
    } catch (...) {
      failure = std::current_exception();  // rethrown once the futures of what arrived are complete
    }
    state.update(pool_.board.board());
    refused = state.take_refusals();
  }
  for (auto& arrival : arrivals) complete(arrival);
  if (!arrivals.empty()) {
    const MutexLock lock(pool_.mutex);
    pool_.state.unfinished -= arrivals.size();
    if (pool_.state.unfinished == 0) pool_.changed.notify_all();
    if (pool_.state.unfinished == 0 && pool_.options.idle_limit.count() > 0) pool_.wake_processes();
  }
  pool_.complete(refused);
  if (failure) std::rethrow_exception(failure);
  return true;
}

// Ignores messages of processes that had the slot before.
void ResultCollector::match(Message& message, std::vector<Arrival>& arrivals) {
  const auto header = WireReader::peek<ResultHeader>(message);
  if (header.slot == kMostBoardWorkers) is_stopping_ = true;
  if (header.slot >= pool_.state.slots.size()) return;
  WorkerSlot& slot = *pool_.state.slots[header.slot];
  if (header.starts != slot.starts() || slot.state == SlotState::absent) return;
  switch (header.kind) {
    case ResultKind::ready:
      if (slot.state != SlotState::starting) return;
      slot.state = SlotState::ready;
      slot.began = Clock::now();
      slot.failed_starts = 0;
      pool_.changed.notify_all();
      return;
    case ResultKind::death:
      pool_.recovery.handle_death(
          slot, std::string(message.text().substr(std::min(sizeof(header), message.text().size()))));
      pool_.changed.notify_all();
      pool_.wake_processes();
      return;
    case ResultKind::unmoved:
      if (const TaskPtr task = take_front(slot, header)) pool_.recovery.keep_home(slot, task);
      if (header.leaves != 0) pool_.scheduler.stop(slot);
      return;
    case ResultKind::value:
    case ResultKind::failure:
      if (TaskPtr task = finish_front(slot, header))
        arrivals.push_back(
            {std::move(task), &message, header.kind == ResultKind::failure ? slot.describe() : std::string()});
      return;
  }
}

TaskPtr ResultCollector::take_front(WorkerSlot& slot, const ResultHeader& header) {
  if (slot.batches.empty()) return nullptr;
  Batch& batch = slot.batches.front();
  if (batch.tasks[batch.finished]->number != header.number) {
    throw Error(Errc::internal,
                fmt::format("{} sent the result of task {} instead of {}", slot.describe(), header.number,
                            batch.tasks[batch.finished]->describe_call()),
                "please report it");
  }
  TaskPtr task = std::move(batch.tasks[batch.finished]);
  if (++batch.finished == batch.limit) slot.batches.pop_front();
  --slot.outstanding;
  return task;
}

TaskPtr ResultCollector::finish_front(WorkerSlot& slot, const ResultHeader& header) {
  TaskPtr task = take_front(slot, header);
  if (task == nullptr) return nullptr;
  ++slot.done_by_process;
  PoolStatistics& statistics = pool_.state.statistics;
  ++statistics.finished;
  if (header.kind == ResultKind::failure) ++statistics.failed;
  if (!slot.serves(task->lane)) ++statistics.relocated;
  pool_.scheduler.learn_time(slot, *task, header.nanoseconds);
  const bool is_worn = pool_.options.recycle_after != 0 && slot.done_by_process >= pool_.options.recycle_after;
  if (is_worn || header.leaves != 0) pool_.scheduler.stop(slot);
  return task;
}

void ResultCollector::complete(Arrival& arrival) const {
  try {
    WireReader reader(*arrival.message);
    const auto header = reader.header<ResultHeader>();
    const auto bytes = reader.bytes(header.bytes);
    if (header.kind == ResultKind::failure) {
      arrival.task->refuse(arrival.task->has_timed_out
                               ? timeout_error(*arrival.task, arrival.worker + " interrupted it")
                               : read_failure(bytes, arrival.task->describe_call(), arrival.worker));
      return;
    }
    const auto tensors = reader.tensors(header.tensors, pool_.memory);
    Decoder from(bytes, tensors);
    arrival.task->deliver(from);
  } catch (...) {
    arrival.task->refuse(std::current_exception());
  }
}

}  // namespace drover::pool
