// The thread that owns the workers' processes.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "pool/plan/mps.hpp"
#include "pool/run/completing.hpp"
#include "pool/run/ctrl_c.hpp"
#include "pool/run/pool_core.hpp"
#include "pool/run/task_table.hpp"
#include "pool/run/worker_loop.hpp"
#include "pool/watch/stack_sampler.hpp"
#include "pool/watch/stall_report.hpp"

namespace drover {
namespace {

constexpr QueueOptions kInbox{.capacity = 256, .bytes = std::uint64_t{16} << 20U, .waits_alone = true};
constexpr std::chrono::seconds kLongestSleep{1};
constexpr std::chrono::seconds kDeathPatience{5};
constexpr std::chrono::milliseconds kTimeForWords{500};  // of those who are killed
constexpr std::chrono::hours kLongestLimit{24 * 365};

// Of a process that may be gone; 0 then.
std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;  // tensors of all, among others
  file >> all >> resident >> shared;
  return (resident - std::min(shared, resident)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// So that sums do not overflow: a hundred years.
std::uint64_t bounded(std::chrono::nanoseconds duration) {
  constexpr std::uint64_t kMost = 100ULL * 365 * 24 * 3600 * 1'000'000'000;
  return std::min(static_cast<std::uint64_t>(duration.count()), kMost);
}

Clock::time_point moment_of(std::uint64_t nanoseconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(nanoseconds)));
}

}  // namespace

void PoolCore::guard() noexcept {
  const detail::CompletingThread here;  // Ctrl-C ends futures here
  try {
    while (guard_once()) {
    }
  } catch (...) {
    break_down(std::current_exception());
  }
  // Whoever is left is killed with what it started.
  try {
    std::vector<Process> left;
    for (auto& [index, process] : processes_) left.push_back(std::move(process));
    processes_.clear();
    end_all(left, std::chrono::milliseconds(0));
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
  stop_collecting();  // nobody says anything any more
}

bool PoolCore::guard_once() {
  if (ctrl_c::count() > 0 && options_.handles_interrupts) interrupt();
  start_processes();
  const Clock::time_point until = enforce_limits();
  {
    const MutexLock lock(mutex_);
    if (is_ending_ && (processes_.empty() || Clock::now() >= kill_at_)) return false;
  }
  wait_for_events(until);
  bury_dead();
  return true;
}

void PoolCore::start_processes() {
  std::vector<std::size_t> due;
  {
    const MutexLock lock(mutex_);
    if (is_ending_ || broken_ || is_asleep_) return;
    for (const auto& slot : slots_) {
      const bool is_due = slot->is_wanted && slot->state == SlotState::absent && Clock::now() >= slot->start_at;
      if (is_due && !processes_.contains(slot->index)) due.push_back(slot->index);
    }
  }
  for (const std::size_t index : due) start_process(index);
}

void PoolCore::start_process(std::size_t index) {
  std::optional<Queue> inbox;
  try {
    inbox.emplace(session_, kInbox);
  } catch (const std::exception& error) {
    session_.check();  // if that is over, so is the pool
    log(LogLevel::warn, error.what());
    const MutexLock lock(mutex_);
    slots_[index]->start_at = Clock::now() + kLongestSleep;  // too many open files, say
    return;
  }
  ProcessOptions how{.entry = pool_worker_entry(), .output = options_.output};
  PoolWorkerArguments told{.slot = index,
                           .inbox = inbox->handle(),
                           .results = results_.handle(),
                           .board = board_id_,
                           .opens_device = options_.opens_device};
  {
    const MutexLock lock(mutex_);
    WorkerSlot& slot = *slots_[index];
    if (is_ending_ || !slot.is_wanted) return;
    BoardWorker& board = *slot.board;
    told.starts = board.starts.fetch_add(1, std::memory_order_relaxed) + 1;
    told.place = slot.plan.device ? Place::device(slot.plan.device->info.backend, slot.plan.device->worker_index)
                                  : Place::cpu();
    told.uuid = slot.plan.device ? uuid_text(slot.plan.device->info) : "";
    told.memory_budget = slot.plan.memory_budget;
    how.name = slot.plan.name;
    how.environment = slot.plan.environment;
    how.unset = slot.plan.unset;
    how.placement = slot.plan.placement;
    board.claim.store(0, std::memory_order_relaxed);
    board.fence.store(0, std::memory_order_relaxed);
    board.state.store(WorkerState::starting, std::memory_order_relaxed);
    board.since.store(board_now(), std::memory_order_relaxed);
    slot.state = SlotState::starting;
    slot.began = Clock::now();
    slot.inbox = inbox;
  }
  told.fingerprint = TaskTable::instance().fingerprint();
  how.arguments = told.to_arguments();
  if (mps_) {
    for (const auto& variable : mps_->environment()) how.environment.push_back(variable);
  }
  try {
    send_calls(*inbox, options_.init, options_.teardown);
    const auto [at, is_new] = processes_.emplace(index, Process::start(session_, how));
    const MutexLock lock(mutex_);
    slots_[index]->board->pid.store(static_cast<std::uint32_t>(at->second.pid()), std::memory_order_relaxed);
  } catch (const std::exception& error) {
    session_.check();  // if that is over, so is the pool
    say_death(index, told.starts, error.what());
  }
}

void PoolCore::wait_for_events(Clock::time_point until) {
  std::vector<pollfd> events{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const auto& [index, process] : processes_)
    events.push_back({.fd = process.pidfd(), .events = POLLIN, .revents = 0});
  static_cast<void>(::poll(events.data(), events.size(), Deadline::at(until).poll_timeout()));
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(wake_.get(), &count));
}

void PoolCore::bury_dead() {
  for (auto at = processes_.begin(); at != processes_.end();) {
    pollfd event{.fd = at->second.pidfd(), .events = POLLIN, .revents = 0};
    if (::poll(&event, 1, 0) <= 0) {
      ++at;
      continue;
    }
    const std::size_t index = at->first;
    std::string how;
    try {
      static_cast<void>(at->second.wait(Deadline::after(kDeathPatience)));
      how = at->second.describe();
      if (const auto tail = at->second.error_tail(); !tail.empty()) how += fmt::format("; its last words: {}", tail);
    } catch (const std::exception& error) {
      how = error.what();
    }
    at = processes_.erase(at);
    std::uint32_t starts = 0;
    {
      const MutexLock lock(mutex_);
      starts = slots_[index]->starts();
    }
    say_death(index, starts, how);
  }
}

// Comes to the collector after everything that the worker said.
void PoolCore::say_death(std::size_t index, std::uint32_t starts, const std::string& how) {
  const ResultHeader header{.starts = starts, .slot = static_cast<std::uint16_t>(index), .kind = ResultKind::death};
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  message += how;
  static_cast<void>(results_.put(std::string_view(message)));
}

void PoolCore::kill(std::size_t index) noexcept {
  try {
    if (const auto at = processes_.find(index); at != processes_.end()) at->second.kill(SIGKILL);
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

// Who is killed is asked before where it is, if it can tell: that is part of the task's error.
void PoolCore::end_overdue(const std::vector<OverdueTask>& overdue) {
  const auto whole = Deadline::after(kTimeForWords);
  for (const auto& late : overdue) {
    BoardWorker& board = board_.worker(late.worker);
    const auto at = processes_.find(late.worker);
    if (at != processes_.end() && board.stack_helper.load() != 0 && !whole.has_passed()) {
      const auto sample = sample_stack(at->second.pid(), 0, board, whole);
      const MutexLock lock(mutex_);
      if (!sample.text.empty()) {
        slots_[late.worker]->seen_in = late.task;
        slots_[late.worker]->seen_at = fmt::format("{}", fmt::join(sample.text, "\n"));
      }
    }
    if (board.task.load(std::memory_order_acquire) == late.task) kill(late.worker);
  }
}

// A task whose time is over is interrupted, and its worker killed if that does not help: it is added to `overdue`
// then. `next` is lowered to when to look again.
void PoolCore::enforce_task_limit(WorkerSlot& slot, std::uint64_t now, std::uint64_t& next,
                                  std::vector<OverdueTask>& overdue) {
  const std::uint64_t number = slot.board->task.load(std::memory_order_acquire);
  if (number == 0) return;
  for (const auto& batch : slot.batches) {
    for (const auto& task : batch.tasks) {
      if (task == nullptr || task->number != number || task->options().timeout.count() == 0) continue;
      const std::uint64_t since = slot.board->since.load(std::memory_order_relaxed);
      const std::uint64_t soft = since + bounded(task->options().timeout);
      const std::uint64_t hard = soft + bounded(task->options().grace);
      if (now >= soft) {
        take_back_from(slot);  // what waits behind it shall not be hit
        task->has_timed_out = true;
        slot.board->interrupt.store(number, std::memory_order_release);
      }
      if (now >= hard) overdue.push_back({.worker = slot.index, .task = number});
      next = std::min(next, now < soft ? soft : std::max(hard, now + 10'000'000));
      return;
    }
  }
}

Clock::time_point PoolCore::enforce_limits() {
  const Clock::time_point now = Clock::now();
  const std::uint64_t now_ns = board_now();
  Clock::time_point until = now + kLongestSleep;
  std::uint64_t next = now_ns + std::uint64_t{1'000'000'000};
  bool has_timeouts = false;
  std::vector<OverdueTask> overdue;
  {
    const MutexLock lock(mutex_);
    for (auto& slot : slots_) {
      enforce_task_limit(*slot, now_ns, next, overdue);
      for (const auto& batch : slot->batches) {
        has_timeouts = has_timeouts || std::ranges::any_of(batch.tasks, [](const TaskPtr& task) {
                         return task != nullptr && task->options().timeout.count() > 0;
                       });
      }
      const bool is_due =
          slot->state == SlotState::absent && slot->is_wanted && !is_asleep_ && !is_ending_ && !broken_;
      if (is_due) until = std::min(until, std::max(slot->start_at, now));
      const bool is_between =
          slot->state == SlotState::starting || (slot->state == SlotState::ending && slot->outstanding == 0);
      if (is_between && options_.start_limit.count() > 0) {
        const auto limit = slot->began + std::min<std::chrono::nanoseconds>(options_.start_limit, kLongestLimit);
        if (now >= limit) kill(slot->index);
        until = std::min(until, std::max(limit, now + std::chrono::milliseconds(10)));
      }
      const bool is_large = options_.recycle_memory != 0 && slot->state == SlotState::ready &&
                            slot->done_by_process > 0 &&
                            resident_bytes(static_cast<pid_t>(slot->board->pid.load())) > options_.recycle_memory;
      if (is_large) tell_to_end(*slot);
    }
    if (is_ending_) until = std::min(until, kill_at_);
    if (options_.idle_limit.count() > 0 && unfinished_ == 0 && !is_ending_ && !is_asleep_) {
      const auto limit = last_move_ + std::min<std::chrono::nanoseconds>(options_.idle_limit, kLongestLimit);
      if (now >= limit) {
        is_asleep_ = true;
        for (auto& slot : slots_) tell_to_end(*slot);
      } else {
        until = std::min(until, limit);
      }
    }
  }
  end_overdue(overdue);
  watch_for_stalls(now);
  until = std::min(until, moment_of(next));
  // A task that begins later than now is not seen to begin.
  return has_timeouts ? std::min(until, now + std::chrono::milliseconds(20)) : until;
}

void PoolCore::watch_for_stalls(Clock::time_point now) {
  if (options_.stall_report_after.count() == 0) return;
  {
    const MutexLock lock(mutex_);
    const bool is_stalled = unfinished_ > 0 && now - last_move_ >= options_.stall_report_after &&
                            now - reported_stall_ >= options_.stall_report_after;
    if (!is_stalled) return;
    reported_stall_ = now;
  }
  try {
    const StallReport report = make_stall_report(board_.board(), {.patience = options_.stall_report_after});
    std::istringstream lines(to_string(report));  // one by one: a line of the log has a limit
    for (std::string line; std::getline(lines, line);)
      log(report.is_alarming() ? LogLevel::warn : LogLevel::info, line);
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());  // a report is not worth a pool
  }
}

}  // namespace drover
