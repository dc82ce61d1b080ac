#include "pool/run/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "pool/run/claim.hpp"

namespace drover::pool {
namespace {

constexpr int kMostFailedStarts = 3;
constexpr int kMostShortages = 5;  // of open files, processes or memory, which may pass: about five seconds
// Workers that die for other reasons may happen to have the same task next, but not this often.
constexpr int kMostUntaken = 5;
constexpr std::chrono::milliseconds kFirstBackoff{150};
constexpr std::chrono::seconds kShortLife{1};

constexpr const char* kRetry = "if the task may be run twice, give it TaskOptions{.retry = Retry::times(n)}";
constexpr const char* kNoMoreRetries =
    "its workers' output says why they ended, for crashes with the stack; run it alone with these arguments";

std::exception_ptr error_of(Errc code, const std::string& message, const std::string& remedy) {
  return std::make_exception_ptr(Error(code, message, remedy));
}

// Whether a worker that fails with this code lacks what the system or a device must give. Other codes say what an
// initializer or an entry did wrong: for the pool, they only end a worker.
bool is_shortage(Errc code) {
  switch (code) {
    case Errc::out_of_memory:
    case Errc::device_memory:
    case Errc::limit_reached:
    case Errc::permission_denied:
    case Errc::unsupported:
    case Errc::driver_missing:
    case Errc::driver_mismatch:
    case Errc::device_lost: return true;
    default: return false;
  }
}

// The code of the cause in the text of an Error, which may have crossed a process as text; peer_lost if there is
// none.
Errc cause_named_in(std::string_view text) {
  constexpr std::string_view kMark = "\n  code: ";
  const std::size_t mark = text.find(kMark);
  if (mark == std::string_view::npos) return Errc::peer_lost;
  const std::string_view name = text.substr(mark + kMark.size());
  const auto* const code = std::ranges::find_if(kAllErrc, [&](Errc each) {
    const std::string_view whole = to_string(each);
    return name.starts_with(whole) && (name.size() == whole.size() || name[whole.size()] == '\n');
  });
  return code != kAllErrc.end() && is_shortage(*code) ? *code : Errc::peer_lost;
}

int most_starts(Errc code) {
  return code == Errc::limit_reached || code == Errc::out_of_memory ? kMostShortages : kMostFailedStarts;
}

// Of a traceback, which the error at the end shows completely.
std::string first_and_last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n');
  const auto first = text.find('\n');
  if (first == std::string::npos || end == std::string::npos || first > end) return text;
  return fmt::format("{} ... {}", text.substr(0, first),
                     text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end)));
}

void clear_process(BoardWorker& board) {
  board.state.store(WorkerState::dead, std::memory_order_relaxed);
  board.task.store(0, std::memory_order_relaxed);
  board.interrupt.store(0, std::memory_order_relaxed);
  board.titled.store(0, std::memory_order_relaxed);
  board.stack_helper.store(0, std::memory_order_relaxed);
  board.pid.store(0, std::memory_order_relaxed);
  board.activity.since.store(0, std::memory_order_relaxed);
  set_text(board.device, "");
}

}  // namespace

std::exception_ptr timeout_error(const detail::TaskCall& task, const std::string& what) {
  const std::chrono::duration<double> timeout = task.options().timeout;
  return error_of(
      Errc::timed_out,
      fmt::format("{} took longer than its {:.3g} s; {}", task.describe_call(), timeout.count(), what),
      "give it more time with TaskOptions::timeout; a task that checks this_worker().is_interrupted() can stop by "
      "itself");
}

// All results of the worker have been received. Of the tasks left in its batches, those below the claim had begun.
void Recovery::handle_death(WorkerSlot& slot, const std::string& how) {
  const bool was_starting = slot.state == SlotState::starting;
  const bool was_ending = slot.state == SlotState::ending;
  const Claim claim = Claim::of(slot.board->claim.load(std::memory_order_acquire));
  const std::string name = slot.describe();
  std::size_t begun = 0;
  for (const auto& batch : slot.batches) {
    for (std::size_t i = batch.finished; i < batch.limit; ++i) {
      const bool has_begun = batch.sequence < claim.sequence || (batch.sequence == claim.sequence && i < claim.next);
      if (slot.state == SlotState::ready && !has_begun && begun == 0 && &batch == &slot.batches.front() &&
          i == batch.finished)
        ++batch.tasks[i]->untaken;  // the worker was about to begin it
      begun += has_begun ? 1 : 0;
      has_begun ? lose_begun(slot, batch.tasks[i], how) : lose_waiting(slot, batch.tasks[i], how);
    }
  }
  // Delay the replacement of a worker that dies as soon as it is ready.
  const bool was_short = slot.done_by_process == 0 && begun == 0 && Clock::now() - slot.began < kShortLife;
  slot.start_at = was_short ? Clock::now() + kFirstBackoff : Clock::time_point();
  slot.reset();
  slot.began = Clock::now();
  clear_process(*slot.board);
  if (was_starting) {
    handle_failed_start(slot, how);
  } else if (!was_ending) {
    ++state_.statistics.restarts;
    log(LogLevel::warn, fmt::format("{} of the pool '{}' is replaced: {}{}", name, pool_name_, how,
                                    begun == 0 ? "; it ran no task" : ""));
  }
}

// Three outcomes: again later, with exponential backoff; never, for this worker; never, for the pool.
void Recovery::handle_failed_start(WorkerSlot& slot, const std::string& how) {
  ++slot.failed_starts;
  slot.start_at = Clock::now() + kFirstBackoff * (1 << std::min(slot.failed_starts, 6));
  const Errc code = cause_named_in(how);
  if (slot.failed_starts < most_starts(code)) {
    log(LogLevel::warn,
        fmt::format("{} did not become ready and is started again: {}", slot.plan.name, first_and_last_line(how)));
    return;
  }
  slot.is_wanted = false;
  const bool has_others = std::ranges::any_of(
      state_.slots, [](const auto& one) { return one->state == SlotState::ready || one->is_wanted; });
  const auto message = fmt::format("{} on {} could not be started {} times in a row: {}", slot.plan.name,
                                   slot.place(), slot.failed_starts, how);
  if (has_others) {
    log(LogLevel::error, message);
    state_.refuse_unserved();
    return;
  }
  if (state_.broken) return;
  state_.broken = error_of(code, message, "its output says why; `drover doctor` checks the machine");
  state_.closed_why = "its workers cannot be started";
  for (auto& task : state_.pending.take_all()) state_.refuse(std::move(task), state_.broken);
}

void Recovery::lose_begun(const WorkerSlot& slot, const TaskPtr& task, const std::string& how) {
  ++task->deaths;
  const auto what = fmt::format("{} was lost: {} ran it and ended: {}", task->describe_call(), slot.describe(), how);
  if (task->has_timed_out) {
    const bool has_stack = slot.sampled_task == task->number && !slot.sampled_stack.empty();
    state_.refuse(task,
                  timeout_error(*task, slot.describe() + " was killed for that" +
                                           (has_stack ? "; its stack at that time:\n" + slot.sampled_stack : "")));
    return;
  }
  const bool is_quarantined = options_.quarantine_after > 0 && task->deaths >= options_.quarantine_after;
  if (task->deaths <= task->options().retry.count() && !is_quarantined && !task->is_cancel_asked &&
      state_.can_requeue(*task)) {
    ++state_.statistics.retried;
    state_.pending.push_again(task);
    return;
  }
  const auto arguments = describe_values(std::as_bytes(std::span(task->arguments())), task->tensors());
  if (is_quarantined) {
    state_.refuse(task,
                  error_of(Errc::task_failed,
                           fmt::format("{} is in quarantine: {} workers died while they ran it; its arguments: ({}). "
                                       "The last: {}",
                                       task->describe_call(), task->deaths, arguments, what),
                           "run it alone with these arguments under a debugger; see PoolOptions::quarantine_after"));
    return;
  }
  const bool is_retried = task->options().retry.count() > 0;
  const auto before = task->deaths > 1 ? fmt::format("; it was run {} times", task->deaths) : "";
  state_.refuse(task, error_of(Errc::peer_lost, fmt::format("{}{}; its arguments: ({})", what, before, arguments),
                               is_retried ? kNoMoreRetries : kRetry));
}

void Recovery::lose_waiting(const WorkerSlot& slot, const TaskPtr& task, const std::string& how) {
  if (task->untaken >= kMostUntaken) {
    state_.refuse(task,
                  error_of(Errc::task_failed,
                           fmt::format("{} is not retried: {} workers ended just before they began it. The last: {} "
                                       "ended: {}",
                                       task->describe_call(), task->untaken, slot.describe(), how),
                           "their output says why; limits of memory or open files are the usual reasons"));
    return;
  }
  if (task->options().retry.is_moved() && state_.can_requeue(*task)) {
    state_.pending.push_again(task);
    return;
  }
  state_.refuse(task, error_of(Errc::peer_lost,
                               fmt::format("{} was lost before it began: {} had it and ended: {}",
                                           task->describe_call(), slot.describe(), how),
                               "submit it again; the pool does so with Retry::if_not_started()"));
}

void Recovery::keep_home(const WorkerSlot& slot, const TaskPtr& task) {
  task->is_kept_home = true;
  if (task->has_timed_out) {
    state_.refuse(task, timeout_error(*task, slot.describe() + " could not move its tensors to its device"));
    return;
  }
  if (task->is_cancel_asked) {
    state_.refuse(
        task, error_of(Errc::cancelled, fmt::format("{} was cancelled before it began", task->describe_call()), ""));
    return;
  }
  if (state_.is_ending || state_.broken) {
    state_.refuse_cancelled(task, kEndedBeforeItBegan);
    return;
  }
  state_.pending.push_again(task);
  state_.refuse_unserved();
}

}  // namespace drover::pool
