// Results come in, and futures end.
#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/wake/bell.hpp"
#include "pool/run/completing.hpp"
#include "pool/run/pool_core.hpp"
#include "pool/values/remote_failure.hpp"

namespace drover {
namespace {

constexpr std::size_t kMostAtOnce = 256;
constexpr double kNewShare = 0.2;  // of the last run in the mean
constexpr std::chrono::milliseconds kRebalanceEvery{2};
constexpr std::chrono::milliseconds kLongestWait{250};
constexpr std::size_t kManyTiny = 64;
constexpr std::chrono::microseconds kGather{40};

}  // namespace

void PoolCore::collect() noexcept {
  const detail::CompletingThread here;
  std::vector<Message> messages;
  try {
    while (!stops_collecting_) {
      if (!collect_some(messages)) break;
    }
  } catch (...) {
    break_down(std::current_exception());
  }
  // Nobody will say anything about what workers still have.
  Refusals refusals;
  {
    const MutexLock lock(mutex_);
    std::vector<TaskPtr> left = pending_.take_all();
    for (auto& slot : slots_) {
      for (auto& batch : slot->batches) {
        for (std::size_t i = batch.finished; i < batch.limit; ++i) left.push_back(batch.tasks[i]);
      }
      slot->batches.clear();
      slot->outstanding = 0;
    }
    for (auto& task : left) {
      auto error =
          broken_ ? broken_
                  : std::make_exception_ptr(Error(
                        Errc::cancelled, fmt::format("{} was cancelled: the pool was ended", task->describe_call())));
      refuse(std::move(task), std::move(error));
    }
    refusals = take_refusals();
    tell_board();
  }
  refuse_all(refusals);
}

// While somebody is idle and another has more than it runs, it is looked again soon whether to move tasks.
PoolCore::CollectPlan PoolCore::plan_collecting() {
  const MutexLock lock(mutex_);
  bool is_idle = false;
  bool is_behind = false;
  std::size_t tiny = 0;
  for (const auto& slot : slots_) {
    is_idle |= slot->state == SlotState::ready && slot->outstanding == 0;
    is_behind |= slot->outstanding > 1;
    if (!slot->batches.empty() && slot->batches.back().is_tiny) tiny += slot->outstanding;
  }
  const bool looks_soon = is_idle && (is_behind || pending_.size() > 0);
  return {.patience = looks_soon ? std::chrono::nanoseconds(kRebalanceEvery) : kLongestWait,
          .gathers = !is_idle && tiny >= kManyTiny && has_cores_to_spare()};
}

// Where threads run beside each other the collector would come for each few results, and take the mutex from those
// who submit more often than they can: with 16 cores that cost two thirds of the tasks. While everybody has something
// to do it lets results gather; looking at their number would take the lines from who writes them.
void PoolCore::gather() {
  for (const auto end = Clock::now() + kGather; Clock::now() < end;) {
    for (int pause = 0; pause < kLongestGap; ++pause) relax();
  }
}

bool PoolCore::collect_some(std::vector<Message>& messages) {
  const CollectPlan plan = plan_collecting();
  if (plan.gathers) gather();
  const GetResult result = results_.get_many(messages, kMostAtOnce, Deadline::after(plan.patience));
  if (result != GetResult::got) messages.clear();
  if (result == GetResult::closed) return false;
  std::vector<Arrival> arrivals;
  Refusals refusals;
  std::exception_ptr failure;
  {
    const MutexLock lock(mutex_);
    if (!messages.empty()) last_move_ = Clock::now();
    try {
      for (auto& message : messages) match(message, arrivals);
      dispatch();
    } catch (...) {
      failure = std::current_exception();  // first what came is told
    }
    tell_board();
    refusals = take_refusals();
  }
  for (auto& arrival : arrivals) complete(arrival);
  if (!arrivals.empty()) {
    const MutexLock lock(mutex_);
    unfinished_ -= arrivals.size();
    if (unfinished_ == 0) changed_.notify_all();
    if (unfinished_ == 0 && options_.idle_limit.count() > 0) wake_warden();
  }
  refuse_all(refusals);
  if (failure) std::rethrow_exception(failure);
  return true;
}

// What another process said that had the same slot before is of no interest any more.
void PoolCore::match(Message& message, std::vector<Arrival>& arrivals) {
  const auto header = WireReader::peek<ResultHeader>(message);
  if (header.slot == kMostBoardWorkers) stops_collecting_ = true;
  if (header.slot >= slots_.size()) return;
  WorkerSlot& slot = *slots_[header.slot];
  if (header.starts != slot.starts() || slot.state == SlotState::absent) return;
  switch (header.kind) {
    case ResultKind::ready:
      if (slot.state != SlotState::starting) return;
      slot.state = SlotState::ready;
      slot.began = Clock::now();
      slot.failed_starts = 0;
      changed_.notify_all();
      return;
    case ResultKind::death:
      handle_death(slot, std::string(message.text().substr(std::min(sizeof(header), message.text().size()))));
      return;
    case ResultKind::unmoved:
      if (const TaskPtr task = take_front(slot, header)) keep_home(slot, task);
      if (header.leaves != 0) tell_to_end(slot);
      return;
    case ResultKind::value:
    case ResultKind::failure:
      if (TaskPtr task = finish_front(slot, header))
        arrivals.push_back(
            {std::move(task), &message, header.kind == ResultKind::failure ? slot.describe() : std::string()});
      return;
  }
}

TaskPtr PoolCore::take_front(WorkerSlot& slot, const ResultHeader& header) {
  if (slot.batches.empty()) return nullptr;
  Batch& batch = slot.batches.front();
  if (batch.tasks[batch.finished]->number != header.number) {
    throw Error(Errc::internal,
                fmt::format("{} said the result of task {}, not of {}", slot.describe(), header.number,
                            batch.tasks[batch.finished]->describe_call()),
                "please report it");
  }
  TaskPtr task = std::move(batch.tasks[batch.finished]);
  if (++batch.finished == batch.limit) slot.batches.pop_front();
  --slot.outstanding;
  return task;
}

TaskPtr PoolCore::finish_front(WorkerSlot& slot, const ResultHeader& header) {
  TaskPtr task = take_front(slot, header);
  if (task == nullptr) return nullptr;
  ++slot.done_by_process;
  ++statistics_.finished;
  if (header.kind == ResultKind::failure) ++statistics_.failed;
  if (!slot.serves(task->lane)) ++statistics_.relocated;
  learn_time(slot, *task, header.nanoseconds);
  const bool is_worn = options_.recycle_after != 0 && slot.done_by_process >= options_.recycle_after;
  if (is_worn || header.leaves != 0) tell_to_end(slot);
  return task;
}

void PoolCore::learn_time(const WorkerSlot& slot, const detail::TaskCall& task, std::uint64_t nanoseconds) {
  const auto took = static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1));
  const auto learn = [&](double& mean) { mean = mean == 0 ? took : (mean * (1 - kNewShare)) + (took * kNewShare); };
  learn(mean_run_[task.task().index]);
  if (slot.serves(task.lane)) learn(lane_mean_[task.lane]);
}

void PoolCore::complete(Arrival& arrival) {
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
    const auto tensors = reader.tensors(header.tensors, memory_);
    Decoder from(bytes, tensors);
    arrival.task->deliver(from);
  } catch (...) {
    arrival.task->refuse(std::current_exception());
  }
}

// The session is over, or the collector failed: nothing will come any more.
void PoolCore::break_down(const std::exception_ptr& why) noexcept {
  const MutexLock lock(mutex_);
  if (!broken_) broken_ = why;
  begin_ending(Clock::now());
  changed_.notify_all();
  wake_warden();
}

}  // namespace drover
