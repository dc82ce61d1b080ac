// What happens when a worker dies.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "pool/run/claim.hpp"
#include "pool/run/pool_core.hpp"

namespace drover {
namespace {

constexpr int kMostFailedStarts = 3;
// Workers that are killed from outside may by chance have had the same task before them; not so often.
constexpr int kMostUntaken = 5;
constexpr std::chrono::milliseconds kFirstBackoff{150};
constexpr std::chrono::seconds kShortLife{1};

std::exception_ptr error_of(Errc code, const std::string& message, const std::string& remedy) {
  return std::make_exception_ptr(Error(code, message, remedy));
}

}  // namespace

std::exception_ptr timeout_error(const detail::TaskCall& task, const std::string& what) {
  const std::chrono::duration<double> timeout = task.options().timeout;
  return error_of(
      Errc::timed_out,
      fmt::format("{} took longer than its {:.3g} s; {}", task.describe_call(), timeout.count(), what),
      "give it more time by TaskOptions::timeout; a task that looks at this_worker().is_interrupted() can "
      "stop by itself");
}

// Everything the worker said has been taken in. What is left in its batches has not come back: below the claim it had
// begun, from there on it had not.
void PoolCore::handle_death(WorkerSlot& slot, const std::string& how) {
  const bool was_starting = slot.state == SlotState::starting;
  const bool was_ending = slot.state == SlotState::ending;
  const Claim claim = Claim::of(slot.board->claim.load(std::memory_order_acquire));
  const std::string who = slot.describe();
  std::size_t begun = 0;
  for (const auto& batch : slot.batches) {
    for (std::size_t i = batch.finished; i < batch.limit; ++i) {
      const bool has_begun = batch.sequence < claim.sequence || (batch.sequence == claim.sequence && i < claim.next);
      if (slot.state == SlotState::ready && !has_begun && begun == 0 && &batch == &slot.batches.front() &&
          i == batch.finished)
        ++batch.tasks[i]->untaken;  // it was the next
      begun += has_begun ? 1 : 0;
      has_begun ? lose_begun(slot, batch.tasks[i], how) : lose_waiting(slot, batch.tasks[i], how);
    }
  }
  // One that dies as soon as it is ready would be started without end.
  const bool was_short = slot.done_by_process == 0 && begun == 0 && Clock::now() - slot.began < kShortLife;
  slot.start_at = was_short ? Clock::now() + kFirstBackoff : Clock::time_point();
  slot.reset();
  slot.began = Clock::now();
  slot.board->state.store(WorkerState::dead, std::memory_order_relaxed);
  slot.board->task.store(0, std::memory_order_relaxed);
  slot.board->interrupt.store(0, std::memory_order_relaxed);
  slot.board->titled.store(0, std::memory_order_relaxed);
  slot.board->stack_helper.store(0, std::memory_order_relaxed);
  slot.board->pid.store(0, std::memory_order_relaxed);
  slot.board->activity.since.store(0, std::memory_order_relaxed);
  set_text(slot.board->device, "");
  if (was_starting) {
    handle_failed_start(slot, how);
  } else if (!was_ending) {
    ++statistics_.restarts;
    log(LogLevel::warn, fmt::format("{} of the pool '{}' is replaced: {}{}", who, board_.board().pool.data(), how,
                                    begun == 0 ? "; it ran no task" : ""));
  }
  changed_.notify_all();
  wake_warden();
}

// Again after a while, and given up when it never works.
void PoolCore::handle_failed_start(WorkerSlot& slot, const std::string& how) {
  ++slot.failed_starts;
  slot.start_at = Clock::now() + kFirstBackoff * (1 << std::min(slot.failed_starts, 6));
  if (slot.failed_starts < kMostFailedStarts) {
    log(LogLevel::warn, fmt::format("{} did not become ready and is started again: {}", slot.plan.name, how));
    return;
  }
  slot.is_wanted = false;
  const bool has_others = std::ranges::any_of(slots_, [](const auto& one) {
    return one->state == SlotState::ready || (one->is_wanted && one->failed_starts < kMostFailedStarts);
  });
  const auto message = fmt::format("{} on {} could not be started {} times in a row: {}", slot.plan.name,
                                   slot.place(), slot.failed_starts, how);
  if (has_others) {
    log(LogLevel::error, message);
    refuse_unserved();
    return;
  }
  if (broken_) return;
  broken_ = error_of(Errc::peer_lost, message, "what it printed says why; `drover doctor` looks at the machine");
  closed_why_ = "its workers cannot be started";
  for (auto& task : pending_.take_all()) refuse(std::move(task), broken_);
}

// Whether somebody will run it, if it is put back.
bool PoolCore::may_wait(const detail::TaskCall& task) const {
  return !is_ending_ && !broken_ && !task.is_over() && is_served(task.lane);
}

void PoolCore::lose_begun(const WorkerSlot& slot, const TaskPtr& task, const std::string& how) {
  ++task->deaths;
  const auto what = fmt::format("{} was lost: {} ran it and ended: {}", task->describe_call(), slot.describe(), how);
  if (task->has_timed_out) {
    const bool was_seen = slot.seen_in == task->number && !slot.seen_at.empty();
    refuse(task, timeout_error(*task, slot.describe() + " was killed for that" +
                                          (was_seen ? "; where it was then:\n" + slot.seen_at : "")));
    return;
  }
  const bool is_quarantined = options_.quarantine_after > 0 && task->deaths >= options_.quarantine_after;
  if (task->deaths <= task->options().retry.count() && !is_quarantined && !task->is_cancel_asked && may_wait(*task)) {
    ++statistics_.retried;
    pending_.push_again(task);
    return;
  }
  const auto arguments = describe_values(std::as_bytes(std::span(task->arguments())), task->tensors());
  if (is_quarantined) {
    refuse(task, error_of(Errc::task_failed,
                          fmt::format("{} is in quarantine, since {} workers died while they ran it; its arguments: "
                                      "({}). The last: {}",
                                      task->describe_call(), task->deaths, arguments, what),
                          "run it alone with these arguments under a debugger; PoolOptions::quarantine_after"));
    return;
  }
  refuse(task, error_of(Errc::peer_lost, fmt::format("{}; its arguments: ({})", what, arguments),
                        "if the task may be run twice, give it TaskOptions{.retry = Retry::times(n)}"));
}

void PoolCore::lose_waiting(const WorkerSlot& slot, const TaskPtr& task, const std::string& how) {
  if (task->untaken >= kMostUntaken) {
    refuse(task, error_of(Errc::task_failed,
                          fmt::format("{} is not tried again, since {} workers ended when they were to take it in, "
                                      "before it began. The last: {} ended: {}",
                                      task->describe_call(), task->untaken, slot.describe(), how),
                          "what they printed says why; limits of memory or open files are the usual reasons"));
    return;
  }
  if (task->options().retry.is_moved() && may_wait(*task)) {
    pending_.push_again(task);
    return;
  }
  refuse(task, error_of(Errc::peer_lost,
                        fmt::format("{} was lost before it began: {} had it and ended: {}", task->describe_call(),
                                    slot.describe(), how),
                        "it may be submitted again; with Retry::if_not_started() the pool does so"));
}

}  // namespace drover
