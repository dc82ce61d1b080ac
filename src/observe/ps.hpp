// observe/ps.hpp: finds the pools of this user and reads their state from outside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "pool/watch/board_reading.hpp"

namespace drover::observe {

/// The process of a worker as the kernel shows it.
struct WorkerProcess {
  bool is_alive = false;                ///< whether the process exists and has not ended
  char state = '?';                     ///< R, S, D, T ...
  std::string wait_channel;             ///< where its main thread sleeps in the kernel; empty if nowhere or unknown
  std::chrono::nanoseconds cpu_time{};  ///< CPU time used
  std::chrono::nanoseconds age{};       ///< since its start
  std::uint64_t resident = 0;           ///< resident memory in bytes
  std::vector<std::string> stack;       ///< of its main thread, innermost first, if requested
  std::string stack_problem;            ///< why there is no stack
  std::vector<std::string> stack_text;  ///< stacks of its threads by its interpreter, if it has one and if requested
};

/// One pool.
struct PoolInfo {
  pool::BoardReading board;              ///< its own view
  bool is_application_alive = false;     ///< whether its owner is running
  std::vector<WorkerProcess> processes;  ///< one for each of `board.workers`, in that order
  std::string problem;                   ///< why it could not be read; then only the application is known
};

/// Options of `list_pools`.
struct PoolListOptions {
  bool has_stacks = false;                                             ///< request stacks from the workers
  std::chrono::nanoseconds time_for_stacks = std::chrono::seconds(3);  ///< for all of them together
  std::string proc = "/proc";                                          ///< the proc file system
};

/// All pools whose processes this user may inspect, sorted by application, oldest first. Changes nothing; with
/// stacks, each worker is interrupted for a moment. The memory of the pools is not trusted.
[[nodiscard]] std::vector<PoolInfo> list_pools(const PoolListOptions& options = {});

}  // namespace drover::observe
