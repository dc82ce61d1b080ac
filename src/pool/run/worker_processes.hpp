// pool/run/worker_processes.hpp: the processes of a pool's workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "drover/session/process.hpp"
#include "pool/plan/mps.hpp"
#include "pool/run/pool_shared.hpp"
#include "pool/run/result_collector.hpp"

namespace drover::pool {

/// Starts, watches, reaps and kills worker processes, and enforces the limits of tasks and workers.
class WorkerProcesses {
 public:
  /// Starts an MPS daemon if the pool asks for one. Requires: both outlive this.
  WorkerProcesses(PoolShared& pool, ResultCollector& collector);

  /// The body of the thread, until the pool has ended and every process is gone.
  void run() noexcept;

 private:
  // A task past its timeout and grace, whose worker must be killed.
  struct OverdueTask {
    std::size_t worker = 0;
    std::uint64_t number = 0;
  };

  bool run_once();
  void start_due();
  void postpone(const std::vector<std::size_t>& due);
  void start_process(std::size_t index);
  void note_failed_start(std::size_t index, const std::string& how) DROVER_EXCLUDES(pool_.mutex);
  void wait_for_events(Clock::time_point until);
  void reap();
  void kill(std::size_t index) noexcept;
  [[nodiscard]] Clock::time_point enforce_limits();
  void enforce_task_limit(WorkerSlot& slot, std::uint64_t now, std::uint64_t& next, std::vector<OverdueTask>& overdue)
      DROVER_REQUIRES(pool_.mutex);
  [[nodiscard]] Clock::time_point enforce_start_limit(const WorkerSlot& slot, Clock::time_point now)
      DROVER_REQUIRES(pool_.mutex);
  [[nodiscard]] Clock::time_point enforce_idle_limit(Clock::time_point now) DROVER_REQUIRES(pool_.mutex);
  void kill_overdue(const std::vector<OverdueTask>& overdue) DROVER_EXCLUDES(pool_.mutex);
  void recycle_large() DROVER_EXCLUDES(pool_.mutex);
  void report_stall(Clock::time_point now) DROVER_EXCLUDES(pool_.mutex);

  PoolShared& pool_;
  ResultCollector& collector_;
  std::unique_ptr<Mps> mps_;
  std::map<std::size_t, Process> processes_;  // by slot, each the current process of its slot
  Clock::time_point reported_stall_;
};

}  // namespace drover::pool
