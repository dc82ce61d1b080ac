#include "pool/run/worker_processes.hpp"

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
#include "pool/run/callback_thread.hpp"
#include "pool/run/ctrl_c.hpp"
#include "pool/run/task_table.hpp"
#include "pool/run/worker_loop.hpp"
#include "pool/watch/stack_sampler.hpp"
#include "pool/watch/stall_report.hpp"
#include "session/worker/program.hpp"

namespace drover::pool {
namespace {

constexpr QueueOptions kInbox{.capacity = 256, .bytes = std::uint64_t{16} << 20U, .waits_alone = true};
constexpr std::chrono::seconds kLongestPoll{1};
constexpr std::chrono::seconds kDeathPatience{5};
constexpr std::chrono::milliseconds kLookAtTemplate{5};   // while it is loading
constexpr std::chrono::milliseconds kTimeForStacks{500};  // of overdue workers, before they are killed
constexpr std::chrono::hours kLongestLimit{24 * 365};

// Private memory of a process; 0 if it is gone.
std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;  // tensors, among others
  file >> all >> resident >> shared;
  return (resident - std::min(shared, resident)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// At most a hundred years, so that sums do not overflow.
std::uint64_t bounded(std::chrono::nanoseconds duration) {
  constexpr std::uint64_t kMost = 100ULL * 365 * 24 * 3600 * 1'000'000'000;
  return std::min(static_cast<std::uint64_t>(duration.count()), kMost);
}

Clock::time_point moment_of(std::uint64_t nanoseconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(nanoseconds)));
}

std::unique_ptr<Mps> start_mps(const PoolState& state, const WorkerPlanOptions& wanted) {
  if (!wanted.mps) return nullptr;
  MpsOptions options{.percentage = wanted.mps_percentage};
  for (const auto& slot : state.slots) {
    if (!slot->plan.device) continue;
    const auto uuid = uuid_text(slot->plan.device->info);
    if (std::ranges::find(options.devices, uuid) == options.devices.end()) options.devices.push_back(uuid);
  }
  return std::make_unique<Mps>(options);
}

}  // namespace

WorkerProcesses::WorkerProcesses(PoolShared& pool, ResultCollector& collector)
    : pool_(pool), collector_(collector), mps_(start_mps(pool.state, pool.plan_options)) {}

void WorkerProcesses::run() noexcept {
  const detail::CallbackThread here;  // Ctrl-C completes futures on this thread
  try {
    while (run_once()) {
    }
  } catch (...) {
    pool_.mark_broken(std::current_exception());
  }
  try {
    std::vector<Process> left;
    for (auto& [index, process] : processes_) left.push_back(std::move(process));
    processes_.clear();
    end_all(left, std::chrono::milliseconds(0));
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
  collector_.stop();  // no process is left to send results
}

bool WorkerProcesses::run_once() {
  if (ctrl_c::count() > 0 && pool_.options.handles_interrupts) pool_.interrupt();
  start_due();
  const Clock::time_point until = enforce_limits();
  {
    const MutexLock lock(pool_.mutex);
    if (pool_.state.is_ending && (processes_.empty() || Clock::now() >= pool_.state.kill_at)) return false;
  }
  wait_for_events(until);
  reap();
  return true;
}

void WorkerProcesses::start_due() {
  std::vector<std::size_t> due;
  {
    const MutexLock lock(pool_.mutex);
    if (pool_.state.is_ending || pool_.state.broken || pool_.state.is_asleep) return;
    for (const auto& slot : pool_.state.slots) {
      const bool is_due = slot->is_wanted && slot->state == SlotState::absent && Clock::now() >= slot->start_at;
      if (is_due && !processes_.contains(slot->index)) due.push_back(slot->index);
    }
  }
  if (!due.empty() && session::start_would_wait()) return postpone(due);
  for (const std::size_t index : due) start_process(index);
}

// Meanwhile the pool enforces limits, notices deaths, and can be ended.
void WorkerProcesses::postpone(const std::vector<std::size_t>& due) {
  const MutexLock lock(pool_.mutex);
  for (const std::size_t index : due) pool_.state.slots[index]->start_at = Clock::now() + kLookAtTemplate;
}

void WorkerProcesses::start_process(std::size_t index) {
  std::optional<Queue> inbox;
  try {
    inbox.emplace(pool_.session, kInbox);
  } catch (const std::exception& error) {
    pool_.session.check();  // the end of the session ends the pool
    return note_failed_start(index, error.what());
  }
  ProcessOptions how{.entry = pool_worker_entry(), .output = pool_.options.output};
  PoolWorkerArguments arguments{.slot = index,
                                .inbox = inbox->handle(),
                                .results = collector_.results(),
                                .board = pool_.board_id,
                                .opens_device = pool_.options.opens_device};
  {
    const MutexLock lock(pool_.mutex);
    WorkerSlot& slot = *pool_.state.slots[index];
    if (pool_.state.is_ending || !slot.is_wanted) return;
    BoardWorker& board = *slot.board;
    arguments.starts = board.starts.fetch_add(1, std::memory_order_relaxed) + 1;
    arguments.place = slot.plan.device ? Place::device(slot.plan.device->info.backend, slot.plan.device->worker_index)
                                       : Place::cpu();
    arguments.uuid = slot.plan.device ? uuid_text(slot.plan.device->info) : "";
    arguments.memory_budget = slot.plan.memory_budget;
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
  arguments.fingerprint = TaskTable::instance().fingerprint();
  how.arguments = arguments.to_arguments();
  if (mps_) {
    for (const auto& variable : mps_->environment()) how.environment.push_back(variable);
  }
  try {
    send_calls(*inbox, pool_.options.init, pool_.options.teardown);
    const auto [at, is_new] = processes_.emplace(index, Process::start(pool_.session, how));
    const MutexLock lock(pool_.mutex);
    pool_.state.slots[index]->board->pid.store(static_cast<std::uint32_t>(at->second.pid()),
                                               std::memory_order_relaxed);
  } catch (const std::exception& error) {
    pool_.session.check();  // the end of the session ends the pool
    collector_.put_death(index, arguments.starts, error.what());
  }
}

// For example, because this process has too many open files for the inbox of a worker.
void WorkerProcesses::note_failed_start(std::size_t index, const std::string& how) {
  Refusals refused;
  {
    const MutexLock lock(pool_.mutex);
    if (pool_.state.is_ending) return;
    pool_.recovery.handle_failed_start(*pool_.state.slots[index], how);
    refused = pool_.state.take_refusals();
    pool_.changed.notify_all();
  }
  pool_.complete(refused);
}

void WorkerProcesses::wait_for_events(Clock::time_point until) {
  std::vector<pollfd> events{{.fd = pool_.wake.get(), .events = POLLIN, .revents = 0}};
  for (const auto& [index, process] : processes_)
    events.push_back({.fd = process.pidfd(), .events = POLLIN, .revents = 0});
  static_cast<void>(::poll(events.data(), events.size(), Deadline::at(until).poll_timeout()));
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(pool_.wake.get(), &count));
}

void WorkerProcesses::reap() {
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
      if (const auto tail = at->second.error_tail(); !tail.empty())
        how += fmt::format("; last lines of its standard error: {}", tail);
    } catch (const std::exception& error) {
      how = error.what();
    }
    at = processes_.erase(at);
    std::uint32_t starts = 0;
    {
      const MutexLock lock(pool_.mutex);
      starts = pool_.state.slots[index]->starts();
    }
    collector_.put_death(index, starts, how);
  }
}

void WorkerProcesses::kill(std::size_t index) noexcept {
  try {
    if (const auto at = processes_.find(index); at != processes_.end()) at->second.kill(SIGKILL);
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

// The error of the task shows the stack of its worker, if the worker can still send it.
void WorkerProcesses::kill_overdue(const std::vector<OverdueTask>& overdue) {
  const auto deadline = Deadline::after(kTimeForStacks);
  for (const auto& [worker, number] : overdue) {
    BoardWorker& board = pool_.board.worker(worker);
    const auto at = processes_.find(worker);
    if (at != processes_.end() && board.stack_helper.load() != 0 && !deadline.has_passed()) {
      const auto sample = sample_stack(at->second.pid(), 0, board, deadline);
      const MutexLock lock(pool_.mutex);
      if (!sample.text.empty()) {
        WorkerSlot& slot = *pool_.state.slots[worker];
        slot.sampled_task = number;
        slot.sampled_stack = fmt::format("{}", fmt::join(sample.text, "\n"));
      }
    }
    if (board.task.load(std::memory_order_acquire) == number) kill(worker);
  }
}

// Interrupts a task past its timeout, and adds it to `overdue` past its grace too. Lowers `next` to the next check.
void WorkerProcesses::enforce_task_limit(WorkerSlot& slot, std::uint64_t now, std::uint64_t& next,
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
        pool_.scheduler.take_back_from(slot);  // the kill must not hit tasks behind it
        task->has_timed_out = true;
        slot.board->interrupt.store(number, std::memory_order_release);
      }
      if (now >= hard) overdue.push_back({.worker = slot.index, .number = number});
      next = std::min(next, now < soft ? soft : std::max(hard, now + 10'000'000));
      return;
    }
  }
}

// Kills a worker that does not become ready, or does not exit, in time. Returns when to check again.
Clock::time_point WorkerProcesses::enforce_start_limit(const WorkerSlot& slot, Clock::time_point now) {
  const bool is_between =
      slot.state == SlotState::starting || (slot.state == SlotState::ending && slot.outstanding == 0);
  if (!is_between || pool_.options.start_limit.count() <= 0) return Clock::time_point::max();
  const auto limit = slot.began + std::min<std::chrono::nanoseconds>(pool_.options.start_limit, kLongestLimit);
  if (now >= limit) kill(slot.index);
  return std::max(limit, now + std::chrono::milliseconds(10));
}

// Stops the workers of a pool that had nothing to do for long. Returns when to check again.
Clock::time_point WorkerProcesses::enforce_idle_limit(Clock::time_point now) {
  PoolState& state = pool_.state;
  const bool can_sleep = state.unfinished == 0 && !state.is_ending && !state.is_asleep;
  if (pool_.options.idle_limit.count() <= 0 || !can_sleep) return Clock::time_point::max();
  const auto limit = state.last_move + std::min<std::chrono::nanoseconds>(pool_.options.idle_limit, kLongestLimit);
  if (now < limit) return limit;
  state.is_asleep = true;
  for (auto& slot : state.slots) pool_.scheduler.stop(*slot);
  return Clock::time_point::max();
}

Clock::time_point WorkerProcesses::enforce_limits() {
  const Clock::time_point now = Clock::now();
  const std::uint64_t now_ns = board_now();
  Clock::time_point until = now + kLongestPoll;
  std::uint64_t next = now_ns + std::uint64_t{1'000'000'000};
  bool has_timeouts = false;
  std::vector<OverdueTask> overdue;
  {
    const MutexLock lock(pool_.mutex);
    const bool starts = !pool_.state.is_asleep && !pool_.state.is_ending && !pool_.state.broken;
    for (const auto& slot : pool_.state.slots) {
      enforce_task_limit(*slot, now_ns, next, overdue);
      for (const auto& batch : slot->batches) {
        has_timeouts = has_timeouts || std::ranges::any_of(batch.tasks, [](const TaskPtr& task) {
                         return task != nullptr && task->options().timeout.count() > 0;
                       });
      }
      const bool is_due = starts && slot->state == SlotState::absent && slot->is_wanted;
      if (is_due) until = std::min(until, std::max(slot->start_at, now));
      until = std::min(until, enforce_start_limit(*slot, now));
    }
    if (pool_.state.is_ending) until = std::min(until, pool_.state.kill_at);
    until = std::min(until, enforce_idle_limit(now));
  }
  kill_overdue(overdue);
  recycle_large();
  report_stall(now);
  until = std::min(until, moment_of(next));
  // A task that begins after this check is noticed by the next one only.
  return has_timeouts ? std::min(until, now + std::chrono::milliseconds(20)) : until;
}

// Reads /proc without the mutex. Only this thread starts and reaps processes, so each is still that of its slot.
void WorkerProcesses::recycle_large() {
  if (pool_.options.recycle_memory == 0) return;
  for (const auto& [index, process] : processes_) {
    if (resident_bytes(process.pid()) <= pool_.options.recycle_memory) continue;
    const MutexLock lock(pool_.mutex);
    WorkerSlot& slot = *pool_.state.slots[index];
    if (slot.state == SlotState::ready && slot.done_by_process > 0) pool_.scheduler.stop(slot);
  }
}

void WorkerProcesses::report_stall(Clock::time_point now) {
  const auto patience = pool_.options.stall_report_after;
  if (patience.count() == 0 || now - reported_stall_ < patience) return;
  {
    const MutexLock lock(pool_.mutex);
    if (pool_.state.unfinished == 0 || now - pool_.state.last_move < patience) return;
  }
  reported_stall_ = now;
  try {
    const StallReport report = make_stall_report(pool_.board.board(), {.patience = patience});
    std::istringstream lines(to_string(report));  // line by line, because the log cuts long lines
    for (std::string line; std::getline(lines, line);)
      log(report.is_alarming() ? LogLevel::warn : LogLevel::info, line);
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());  // the pool goes on without a report
  }
}

}  // namespace drover::pool
