// pool/run/worker_processes.hpp: the thread that owns the processes of a pool's workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "drover/session/process.hpp"
#include "pool/plan/mps.hpp"
#include "pool/run/pool_shared.hpp"
#include "pool/run/result_collector.hpp"

namespace drover {

/// Starts, watches, reaps and kills worker processes, and enforces the limits of tasks and workers.
class WorkerProcesses {
 public:
  /// Starts an MPS daemon if the pool asks for one. Requires: both outlive this.
  WorkerProcesses(PoolShared& pool, ResultCollector& collector);

  void start();
  /// Returns when the pool has ended and every process is gone.
  void join();
  /// In a forked child, where the thread does not exist.
  void detach();

 private:
  // A task past its timeout and grace, whose worker is to be killed.
  struct OverdueTask {
    std::size_t worker = 0;
    std::uint64_t number = 0;
  };
  // A process whose memory is checked against PoolOptions::recycle_memory.
  struct Candidate {
    std::size_t worker = 0;
    std::uint32_t starts = 0;
    pid_t pid = 0;
  };

  void run() noexcept;
  bool run_once();
  void start_due();
  void start_process(std::size_t index);
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
  std::map<std::size_t, Process> processes_;  // by slot; only the thread touches them
  Clock::time_point reported_stall_;
  std::thread thread_;
};

}  // namespace drover
