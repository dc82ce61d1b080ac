#include "pool/run/pool_shared.hpp"

#include <sys/eventfd.h>

#include <algorithm>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "pool/run/task_table.hpp"

namespace drover::pool {
namespace {

Fd make_wake_fd() {
  Fd fd(sys::call("eventfd", ::eventfd, 0U, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.is_open()) throw_errno("eventfd", "of a pool");
  return fd;
}

// The scheduler needs the final indices of the tasks.
PoolOptions with_tasks_closed(PoolOptions options) {
  TaskTable::instance().close();
  return options;
}

}  // namespace

PoolShared::PoolShared(const Session& session_given, const WorkerPlanOptions& workers,
                       const PoolOptions& options_given)
    : options(with_tasks_closed(options_given)),
      plan_options(workers),
      session(session_given),
      memory(session),
      board(OwnBoard::make(options.name.empty() ? "pool" : options.name)),
      wake(make_wake_fd()),
      scheduler(state, options, wake.get()),
      recovery(state, options, board.board().pool.data()) {
  const auto& tasks = TaskTable::instance().all();
  Board& shown = board.board();
  shown.task_names = static_cast<std::uint32_t>(std::min(tasks.size(), kMostBoardTasks));
  for (std::size_t i = 0; i < shown.task_names; ++i) set_text(shown.tasks.at(i), tasks[i]->name);
  const auto plans = plan_workers(workers, look_at_machine());
  state.add_slots(plans, plans.size(), workers, board);
  board_id = session.deposit(board.file(), kBoardFileName, sizeof(Board));
}

PoolShared::~PoolShared() {
  try {
    if (session.self() != kNobody) session.withdraw(board_id);
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());  // the session is over, and its deposits are gone
  }
}

void PoolShared::wake_processes() const noexcept { static_cast<void>(::eventfd_write(wake.get(), 1)); }

void PoolShared::complete(const Refusals& refused) noexcept {
  if (refused.empty()) return;
  for (const auto& [task, error] : refused) task->refuse(error);
  const MutexLock lock(mutex);
  state.unfinished -= refused.size();
  changed.notify_all();
}

void PoolShared::interrupt() {
  Refusals refused;
  {
    const MutexLock lock(mutex);
    constexpr const char* kWhy = "the program was interrupted by Ctrl-C";
    if (state.closed_why.empty()) state.closed_why = kWhy;
    scheduler.cancel_pending(kWhy);
    refused = state.take_refusals();
    state.update(board.board());
  }
  complete(refused);
}

void PoolShared::mark_broken(const std::exception_ptr& why) noexcept {
  const MutexLock lock(mutex);
  if (!state.broken) state.broken = why;
  scheduler.begin_ending(Clock::now());
  changed.notify_all();
  wake_processes();
}

}  // namespace drover::pool
