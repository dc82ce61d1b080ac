// pool/run/worker_loop.hpp: what a worker of a pool does.
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

namespace drover {

/// What a worker is told when it is started.
struct PoolWorkerArguments {
  std::size_t slot = 0;             ///< its number
  std::uint32_t starts = 0;         ///< which process of that number it is
  ObjectHandle inbox;               ///< where its tasks come from
  ObjectHandle results;             ///< where its results go
  SlabId board{};                   ///< deposited with the keeper
  Place place;                      ///< its device as it is numbered there
  std::string uuid;                 ///< of that device; empty without one
  std::uint64_t memory_budget = 0;  ///< bytes it may have there; 0: no bound
  std::uint64_t fingerprint = 0;    ///< TaskTable's, of the application
  bool opens_device = true;         ///< before it is ready

  [[nodiscard]] std::vector<std::string> to_arguments() const;
  /// Throws `Errc::invalid_argument` for what `to_arguments` did not write.
  [[nodiscard]] static PoolWorkerArguments parse(const std::vector<std::string>& arguments);
};

/// The entry that workers of pools run.
[[nodiscard]] const Entry& pool_worker_entry();

/// The first message to a worker: what it does before its first task and after its last.
void send_calls(Queue& inbox, const Call& init, const Call& teardown);

}  // namespace drover
