// tests/support/process_tree.hpp: the processes below one, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace drover::test {

/// One process at the moment it was looked at.
struct ProcessEntry {
  pid_t pid;            ///< its id
  pid_t parent;         ///< the id of its parent
  char state;           ///< as in /proc/PID/stat: R, S, D, T, Z ...
  std::string command;  ///< its command line, or [name] where it has none

  /// Ended, but not yet reaped by its parent.
  [[nodiscard]] bool is_zombie() const noexcept { return state == 'Z' || state == 'X'; }
};

/// Every process that descends from `root`, nearest first, without `root`.
[[nodiscard]] std::vector<ProcessEntry> descendants_of(pid_t root);
/// The same for several roots, in one look at /proc; each process once.
[[nodiscard]] std::vector<ProcessEntry> descendants_of(const std::vector<pid_t>& roots);

/// "pid 42, state S, child of 41: sleep 1000".
[[nodiscard]] std::string to_string(const ProcessEntry& process);

/// What /proc tells of every thread of `root` and its descendants: name, state, where in the kernel it waits.
/// For machines without a debugger.
[[nodiscard]] std::string kernel_stacks_of(pid_t root);

}  // namespace drover::test
