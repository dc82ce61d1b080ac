// drover/observe/ps.hpp: the pools of this user, found and read from outside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/pool/board_reading.hpp"

namespace drover {

/// The process of a worker as the kernel shows it.
struct WorkerProcess {
  bool is_alive = false;                ///< whether there is such a process, and it has not ended
  char state = '?';                     ///< R, S, D, T ...
  std::string wait_channel;             ///< where its main thread sleeps in the kernel; empty if nowhere or not told
  std::chrono::nanoseconds cpu_time{};  ///< what it has used
  std::chrono::nanoseconds age{};       ///< since it was started
  std::uint64_t resident = 0;           ///< bytes of memory it has now
  std::vector<std::string> stack;       ///< of its main thread, innermost first, if asked for
  std::string stack_problem;            ///< why there is none
  std::vector<std::string> stack_text;  ///< what its interpreter says of its threads, if it has one and was asked
};

/// One pool.
struct PoolInfo {
  BoardReading board;                    ///< what it says of itself
  bool is_application_alive = false;     ///< whether its owner still runs
  std::vector<WorkerProcess> processes;  ///< one for each of `board.workers`, in that order
  std::string problem;                   ///< why it could not be read; then the rest is empty but the application
};

/// What to look for.
struct PoolListOptions {
  bool has_stacks = false;                                             ///< ask workers for their stacks
  std::chrono::nanoseconds time_for_stacks = std::chrono::seconds(3);  ///< all of them together
  std::string proc = "/proc";                                          ///< where processes are looked at
};

/// All pools whose processes this user may look at, by application and age. Changes nothing; with stacks, each worker
/// is interrupted for a moment. What lies in their memory is not trusted.
[[nodiscard]] std::vector<PoolInfo> list_pools(const PoolListOptions& options = {});

}  // namespace drover
