// process/inspect/process_table.hpp: a snapshot of the processes of the machine from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace drover::process {

/// One process.
struct ProcessRecord {
  pid_t pid = 0;            ///< process id
  pid_t parent = 0;         ///< id of the parent
  pid_t session = 0;        ///< id of its session leader
  char state = '?';         ///< as in /proc/PID/stat: R, S, D, T, Z ...
  std::uint64_t start = 0;  ///< start time, in clock ticks since boot; identifies a process together with the id

  /// Has ended.
  [[nodiscard]] bool has_ended() const noexcept { return state == 'Z' || state == 'X'; }
  /// Cannot start a process until it gets a signal or leaves the kernel.
  [[nodiscard]] bool stands_still() const noexcept {
    return has_ended() || state == 'T' || state == 't' || state == 'D';
  }
};

/// Reads all visible processes one after another, so a process that starts meanwhile may be missing. nullopt, which
/// differs from an empty table, if /proc cannot be read: it is not mounted, or too many files are open.
[[nodiscard]] std::optional<std::vector<ProcessRecord>> read_processes();

/// Reads one process; nullopt if it is gone.
[[nodiscard]] std::optional<ProcessRecord> read_process(pid_t pid);

/// The assignment ("NAME=value") of a variable in the environment with which the process was started; empty if there
/// is none, or as for `was_started_with_any`.
[[nodiscard]] std::string assignment_of(pid_t pid, std::string_view name);

/// Whether the process was started with one of these assignments ("NAME=value") in its environment. False if its
/// environment may not be read, as that of another user. May block on a process that is stuck in the kernel (state
/// D).
[[nodiscard]] bool was_started_with_any(pid_t pid, const std::set<std::string, std::less<>>& assignments);

}  // namespace drover::process
