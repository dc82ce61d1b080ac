// process/inspect/process_table.hpp: the processes of the machine, as /proc shows them at a moment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace drover {

/// One process.
struct ProcessRecord {
  pid_t pid = 0;            ///< its id
  pid_t parent = 0;         ///< its parent's id
  pid_t session = 0;        ///< the id of the process that made its session
  char state = '?';         ///< as in /proc/PID/stat: R, S, D, T, Z ...
  std::uint64_t start = 0;  ///< when it began, in ticks since the machine did; with the id it names a process exactly

  /// Runs no code any more.
  [[nodiscard]] bool has_ended() const noexcept { return state == 'Z' || state == 'X'; }
  /// Can start no process until it gets a signal, or is out of the kernel.
  [[nodiscard]] bool stands_still() const noexcept {
    return has_ended() || state == 'T' || state == 't' || state == 'D';
  }
};

/// All that can be seen. Each is read at its own time, so a process that is started meanwhile may be missing. Nothing
/// if some cannot be looked at, which is not the same as nobody being there: too many files are open, or there is no
/// /proc.
[[nodiscard]] std::optional<std::vector<ProcessRecord>> read_processes();

/// One of them; nothing if it is gone.
[[nodiscard]] std::optional<ProcessRecord> read_process(pid_t pid);

/// Whether the process was started with this assignment ("NAME=value") in its environment. False if that may not be
/// read, as of other users' processes. Can wait for a process that is stuck in the kernel (state D).
[[nodiscard]] bool was_started_with(pid_t pid, std::string_view assignment);

}  // namespace drover
