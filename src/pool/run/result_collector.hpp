// pool/run/result_collector.hpp: receives results and completes futures.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/ipc/queue.hpp"
#include "pool/run/pool_shared.hpp"
#include "pool/run/wire.hpp"

namespace drover::pool {

/// Takes messages from the result queue of a pool, matches them with tasks, dispatches more tasks, and completes
/// futures.
class ResultCollector {
 public:
  /// Requires: `pool` outlives this.
  explicit ResultCollector(PoolShared& pool);

  /// The body of the thread, until `stop` or the end of the session.
  void run() noexcept;
  /// Ends `run` when it has received every message put before.
  void stop() noexcept;
  /// Puts the death of a process behind every message it sent.
  void put_death(std::size_t slot, std::uint32_t starts, const std::string& how);
  /// The queue that workers put results into.
  [[nodiscard]] ObjectHandle results() const { return results_.handle(); }

 private:
  // A result and its task.
  struct Arrival {
    TaskPtr task;
    Message* message = nullptr;
    std::string worker;
  };
  // How to wait for results.
  struct WaitPlan {
    std::chrono::nanoseconds patience{};  // for the first
    bool gathers = false;                 // whether to let several accumulate
  };

  bool collect_some(std::vector<Message>& messages);
  void refuse_rest() DROVER_EXCLUDES(pool_.mutex);
  [[nodiscard]] WaitPlan plan_wait() DROVER_EXCLUDES(pool_.mutex);
  void match(Message& message, std::vector<Arrival>& arrivals) DROVER_REQUIRES(pool_.mutex);
  [[nodiscard]] static TaskPtr take_front(WorkerSlot& slot, const ResultHeader& header);
  [[nodiscard]] TaskPtr finish_front(WorkerSlot& slot, const ResultHeader& header) DROVER_REQUIRES(pool_.mutex);
  void complete(Arrival& arrival) const;

  PoolShared& pool_;
  Queue results_;
  std::atomic<bool> is_stopping_{false};
};

}  // namespace drover::pool
