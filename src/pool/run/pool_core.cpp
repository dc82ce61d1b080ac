#include "pool/run/pool_core.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/thread.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/object/left_alone.hpp"
#include "pool/plan/machine.hpp"
#include "pool/run/callback_thread.hpp"
#include "pool/run/ctrl_c.hpp"
#include "pool/watch/stall_report.hpp"

namespace drover::pool {
namespace {

constexpr std::chrono::seconds kEndPatience{30};

// Without a thread the core is leaked: its own threads still use it.
void end_elsewhere(std::shared_ptr<PoolCore> core, Duration grace) noexcept {
  try {
    start_thread("the thread that ends a pool", [core, grace] { core->end(grace); }).detach();
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
    static_cast<void>(new std::shared_ptr<PoolCore>(std::move(core)));
  }
}

}  // namespace

PoolCore::PoolCore(const Session& session, const WorkerPlanOptions& workers, const PoolOptions& options)
    : shared_(session, workers, options), collector_(shared_), processes_(shared_, collector_) {}

PoolCore::~PoolCore() { end(std::chrono::seconds(1)); }

void PoolCore::start() {
  collecting_ = start_thread("the thread that collects the results of a pool", [this] { collector_.run(); });
  try {
    // It replaces workers as long as it runs, so a program that waits for one of them is not alone in between.
    auto watch = [this, expected = std::make_unique<ipc::ExpectedPeers>()] { processes_.run(); };
    watching_ = start_thread("the thread that watches the workers of a pool", std::move(watch));
  } catch (...) {
    collector_.stop();
    collecting_.join();
    throw;
  }
  if (options().handles_interrupts) ctrl_c::add(shared_.wake.get());
}

// Called before the mutex is taken: another thread may have held it when the process was forked.
void PoolCore::check_not_forked() const {
  if (session().self() == kNobody) {
    throw Error(Errc::forked, "a pool cannot be used in a forked child, which is no participant of its session",
                "make the pool in the process that uses it");
  }
}

void PoolCore::submit(const TaskPtr& task) {
  check_not_forked();
  require(task->options().timeout.count() >= 0 && task->options().grace.count() >= 0,
          "the timeout or grace of a task is negative", "use 0 for none");
  for (const auto& tensor : task->tensors()) {
    if (!tensor.memory().is_of(session())) {
      throw Error(Errc::invalid_argument, fmt::format("{} has a tensor of another session", task->describe_call()),
                  "make it with Pool::memory(), or copy it there");
    }
  }
  Refusals refused;
  {
    const MutexLock lock(shared_.mutex);
    PoolState& state = shared_.state;
    state.check_open();
    task->number = ++state.last_number;
    state.choose_lane(*task);
    if (!state.is_served(task->lane)) {
      throw Error(Errc::invalid_argument,
                  fmt::format("{} is for a worker that the pool no longer has", task->describe_call()),
                  "it was removed by Pool::resize, or failed to start; see Pool::workers");
    }
    task->pool = weak_from_this();
    ++state.unfinished;
    state.pending.push(task);
    if (std::exchange(state.is_asleep, false)) shared_.wake_processes();
    if (!shared_.scheduler.is_collected_soon(task->task())) {
      shared_.scheduler.dispatch();
      state.update(shared_.board.board());
    }
    refused = state.take_refusals();
  }
  shared_.complete(refused);
}

bool PoolCore::cancel(detail::TaskCall& task, detail::FutureState& future) {
  if (session().self() == kNobody) return false;
  bool is_cancelled = false;
  {
    const MutexLock lock(shared_.mutex);
    PoolState& state = shared_.state;
    is_cancelled = state.pending.erase(task);
    for (std::size_t i = 0; i < state.slots.size() && !is_cancelled; ++i) {
      WorkerSlot& slot = *state.slots[i];
      const bool has_it = std::ranges::any_of(slot.batches, [&](const Batch& batch) {
        return std::ranges::any_of(batch.tasks, [&](const TaskPtr& one) { return one.get() == &task; });
      });
      if (!has_it) continue;
      shared_.scheduler.take_back_from(slot);
      is_cancelled = state.pending.erase(task);
      if (!is_cancelled) {
        task.is_cancel_asked = true;
        slot.board->interrupt.store(task.number, std::memory_order_release);
      }
      shared_.scheduler.dispatch();
    }
    if (is_cancelled) {
      --state.unfinished;
      ++state.statistics.finished;
      ++state.statistics.failed;
      shared_.changed.notify_all();
    }
  }
  if (is_cancelled)
    future.fail(
        std::make_exception_ptr(Error(Errc::cancelled, fmt::format("{} was cancelled", task.describe_call()))));
  return is_cancelled;
}

// The plans of all workers if the pool has to grow. Its own processes do not count as users of the devices.
std::vector<WorkerPlan> PoolCore::plan_growth(std::size_t workers) const {
  std::vector<pid_t> own;
  {
    const MutexLock lock(shared_.mutex);
    if (workers <= shared_.state.slots.size()) return {};
    for (const auto& slot : shared_.state.slots) {
      if (const auto pid = slot->board->pid.load(std::memory_order_relaxed); pid != 0)
        own.push_back(static_cast<pid_t>(pid));
    }
  }
  WorkerPlanOptions wanted = shared_.plan_options;
  wanted.workers = workers;
  wanted.per_device = 0;
  return plan_workers(wanted, without(look_at_machine(), own));
}

void PoolCore::resize(std::size_t workers) {
  check_not_forked();
  require(workers > 0, "a pool cannot be resized to no workers", "end it with Pool::end or Pool::join");
  const auto plans = plan_growth(workers);
  Refusals refused;
  {
    const MutexLock lock(shared_.mutex);
    PoolState& state = shared_.state;
    state.check_open();
    state.add_slots(plans, workers, shared_.plan_options, shared_.board);
    for (std::size_t i = 0; i < state.slots.size(); ++i) {
      state.slots[i]->is_wanted = i < workers;
      if (i >= workers) shared_.scheduler.stop(*state.slots[i]);
    }
    state.is_asleep = false;
    state.refuse_unserved();
    shared_.scheduler.dispatch();
    refused = state.take_refusals();
  }
  shared_.complete(refused);
  shared_.wake_processes();
}

void PoolCore::wait_for_change(Deadline deadline) {
  shared_.changed.wait_for(shared_.mutex,
                           std::min<std::chrono::nanoseconds>(deadline.remaining(), std::chrono::seconds(1)));
}

WaitResult PoolCore::wait_ready(Deadline deadline) {
  check_not_forked();
  detail::check_may_wait();
  const MutexLock lock(shared_.mutex);
  const auto is_ready = [](const auto& slot) { return !slot->is_wanted || slot->state == SlotState::ready; };
  while (!std::ranges::all_of(shared_.state.slots, is_ready)) {
    shared_.state.check_open();
    if (deadline.has_passed()) return WaitResult::timed_out;
    wait_for_change(deadline);
  }
  shared_.state.check_open();
  return WaitResult::done;
}

WaitResult PoolCore::join(Deadline deadline) {
  check_not_forked();
  detail::check_may_wait();
  {
    const MutexLock lock(shared_.mutex);
    PoolState& state = shared_.state;
    if (state.closed_why.empty()) state.closed_why = "the pool was joined and takes no more tasks";
    while (state.unfinished > 0) {
      if (deadline.has_passed()) return WaitResult::timed_out;
      wait_for_change(deadline);
    }
  }
  end(kEndPatience);
  return WaitResult::done;
}

void PoolCore::end(Duration grace) noexcept {
  if (session().self() == kNobody) {  // in a forked child the threads do not exist, and the parent owns everything
    if (collecting_.joinable()) collecting_.detach();
    if (watching_.joinable()) watching_.detach();
    return;
  }
  ctrl_c::remove(shared_.wake.get());
  Refusals refused;
  {
    const MutexLock lock(shared_.mutex);
    shared_.scheduler.begin_ending(Deadline::after(grace).moment());
    refused = shared_.state.take_refusals();
  }
  shared_.complete(refused);
  shared_.wake_processes();
  // A thread of the pool cannot join itself: another one does, once the callback on this one has returned.
  if (detail::is_callback_thread()) {
    if (auto self = weak_from_this().lock()) end_elsewhere(std::move(self), grace);
    return;
  }
  const MutexLock one_at_a_time(ending_);
  if (watching_.joinable()) watching_.join();
  collector_.stop();
  if (collecting_.joinable()) collecting_.join();
}

std::vector<std::size_t> PoolCore::numbers() const {
  check_not_forked();
  const MutexLock lock(shared_.mutex);
  std::vector<std::size_t> numbers;
  for (const auto& slot : shared_.state.slots) {
    if (slot->is_wanted) numbers.push_back(slot->index);
  }
  return numbers;
}

std::vector<PoolWorkerInfo> PoolCore::workers() const {
  check_not_forked();
  const MutexLock lock(shared_.mutex);
  std::vector<PoolWorkerInfo> infos;
  for (const auto& slot : shared_.state.slots) {
    const BoardWorker& board = *slot->board;
    infos.push_back({.index = slot->index,
                     .name = slot->plan.name,
                     .pid = static_cast<pid_t>(board.pid.load(std::memory_order_relaxed)),
                     .place = slot->place(),
                     .device_uuid = slot->state == SlotState::ready ? std::string(board.device.data()) : "",
                     .is_ready = slot->state == SlotState::ready,
                     .done = board.done.load(std::memory_order_relaxed),
                     .starts = slot->starts(),
                     .task = board.task.load(std::memory_order_relaxed)});
  }
  return infos;
}

PoolStatistics PoolCore::statistics() const {
  check_not_forked();
  const MutexLock lock(shared_.mutex);
  PoolStatistics now = shared_.state.statistics;
  now.pending = shared_.state.pending.size();
  now.in_flight = shared_.state.in_flight();
  return now;
}

std::string PoolCore::stall_text() const {
  StallOptions how;
  if (options().stall_report_after.count() > 0)
    how.patience = std::min<std::chrono::nanoseconds>(how.patience, options().stall_report_after);
  return to_string(make_stall_report(shared_.board.board(), how));
}

}  // namespace drover::pool
