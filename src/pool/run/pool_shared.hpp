// pool/run/pool_shared.hpp: what the threads of a pool share.
#pragma once

#include <exception>

#include "drover/base/fd.hpp"
#include "drover/base/mutex.hpp"
#include "drover/pool/pool.hpp"
#include "pool/run/pool_state.hpp"
#include "pool/run/recovery.hpp"
#include "pool/run/scheduler.hpp"
#include "pool/watch/board.hpp"

namespace drover::pool {

/// The constants of a pool, and its mutex with everything it guards. Futures are completed only while the mutex is
/// free, because their callbacks may call the pool.
struct PoolShared {
  PoolShared(const Session& session_given, const WorkerPlanOptions& workers, const PoolOptions& options_given);
  ~PoolShared();
  PoolShared(const PoolShared&) = delete;
  PoolShared& operator=(const PoolShared&) = delete;

  /// Wakes WorkerProcesses to check the state.
  void wake_processes() const noexcept;
  /// Completes the futures of refused tasks with their errors.
  void complete(const Refusals& refused) noexcept DROVER_EXCLUDES(mutex);
  /// The effect of the first Ctrl-C: cancels what has not begun; running tasks go on.
  void interrupt() DROVER_EXCLUDES(mutex);
  /// Ends the pool because of an error, which submitters get from then on.
  void mark_broken(const std::exception_ptr& why) noexcept DROVER_EXCLUDES(mutex);

  const PoolOptions options;
  const WorkerPlanOptions plan_options;
  Session session;
  const Memory memory;
  const OwnBoard board;
  const Fd wake;  // an eventfd that WorkerProcesses polls
  SlabId board_id{};

  mutable Mutex mutex;
  ConditionVariable changed;  // workers became ready, all tasks are done, or the pool broke
  PoolState state DROVER_GUARDED_BY(mutex);
  Scheduler scheduler DROVER_GUARDED_BY(mutex);
  Recovery recovery DROVER_GUARDED_BY(mutex);
};

}  // namespace drover::pool
