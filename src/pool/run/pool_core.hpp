// pool/run/pool_core.hpp: the operations of a pool, and the parts behind them.
//
// Threads of the program submit tasks. The ResultCollector's thread receives results, completes futures and sends
// workers their next tasks. The thread of WorkerProcesses starts the workers' processes, kills them and sees them
// die. One mutex, in PoolShared, guards the PoolState, the Scheduler and the Recovery that works on it; those three
// know nothing of the mutex. Processes belong to WorkerProcesses alone.
//
// A task is in exactly one place: pending (pool/run/pending.hpp), in a batch of a slot, or done. A worker sends each
// result in its own message, in the order of its tasks. When a worker dies, WorkerProcesses puts a message behind
// everything it sent. When the collector receives that message it knows which tasks returned, and the claim word
// (pool/run/claim.hpp) tells which of the rest had begun.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/pool/pool.hpp"
#include "pool/run/pool_shared.hpp"
#include "pool/run/result_collector.hpp"
#include "pool/run/worker_processes.hpp"

namespace drover::pool {

class PoolCore : public std::enable_shared_from_this<PoolCore> {
 public:
  PoolCore(const Session& session, const WorkerPlanOptions& workers, const PoolOptions& options);
  ~PoolCore();
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;

  /// Starts the threads. Call it once.
  void start();

  void submit(const TaskPtr& task);
  /// Same as Future::cancel.
  bool cancel(detail::TaskCall& task, detail::FutureState& future);
  void resize(std::size_t workers);
  WaitResult wait_ready(Deadline deadline);
  WaitResult join(Deadline deadline);
  void end(Duration grace) noexcept;

  [[nodiscard]] std::size_t size() const { return numbers().size(); }
  /// Of workers that it has, or will have.
  [[nodiscard]] std::vector<std::size_t> numbers() const;
  [[nodiscard]] std::vector<PoolWorkerInfo> workers() const;
  [[nodiscard]] PoolStatistics statistics() const;
  [[nodiscard]] const PoolOptions& options() const noexcept { return shared_.options; }
  [[nodiscard]] const Session& session() const noexcept { return shared_.session; }
  [[nodiscard]] const Memory& memory() const noexcept { return shared_.memory; }
  /// Same as Pool::stall_report.
  [[nodiscard]] std::string stall_text() const;

 private:
  void check_not_forked() const;
  [[nodiscard]] std::vector<WorkerPlan> plan_growth(std::size_t workers) const;
  /// Waits for a change of the state, a second at most.
  void wait_for_change(Deadline deadline) DROVER_REQUIRES(shared_.mutex);

  PoolShared shared_;
  ResultCollector collector_;
  WorkerProcesses processes_;
  std::thread collecting_;
  std::thread watching_;
  Mutex ending_;  // held by the thread that joins the others
};

}  // namespace drover::pool
