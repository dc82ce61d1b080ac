// pool/run/worker_loop.hpp: the main loop of a pool's worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/ipc/membership.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/pool/pool.hpp"
#include "drover/session/session.hpp"
#include "drover/session/worker.hpp"
#include "drover/tensor/memory.hpp"

namespace drover::pool {

/// The arguments of a worker process.
struct PoolWorkerArguments {
  std::size_t slot = 0;             ///< index of the worker
  std::uint32_t starts = 0;         ///< BoardWorker::starts of this process
  ObjectHandle inbox;               ///< queue of its tasks
  ObjectHandle results;             ///< queue of its results
  SlabId board{};                   ///< deposited with the keeper
  Place place;                      ///< its device as the worker numbers it
  std::string uuid;                 ///< of that device; empty without one
  std::uint64_t memory_budget = 0;  ///< bytes it may use on the device; 0: unlimited
  std::uint64_t fingerprint = 0;    ///< TaskTable::fingerprint of the application
  bool opens_device = true;         ///< whether to open the device before it is ready

  [[nodiscard]] std::vector<std::string> to_arguments() const;
  /// Throws `Errc::invalid_argument` for anything that `to_arguments` did not return.
  [[nodiscard]] static PoolWorkerArguments parse(const std::vector<std::string>& arguments);
};

/// The entry point of pool workers.
[[nodiscard]] const Entry& pool_worker_entry();

/// Sends the first message to a worker: its initialiser and teardown.
void send_calls(Queue& inbox, const Call& init, const Call& teardown);

}  // namespace drover::pool
