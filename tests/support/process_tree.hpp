// tests/support/process_tree.hpp: the descendants of a process, read from /proc.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace drover::test {

/// A process at one moment.
struct ProcessEntry {
  pid_t pid;            ///< its id
  pid_t parent;         ///< the id of its parent
  char state;           ///< as in /proc/PID/stat: R, S, D, T, Z ...
  std::string command;  ///< its command line, or [name] if it has none

  /// Ended, but not yet reaped by its parent.
  [[nodiscard]] bool is_zombie() const noexcept { return state == 'Z' || state == 'X'; }
};

/// All descendants of `root`, nearest first, without `root`.
[[nodiscard]] std::vector<ProcessEntry> descendants_of(pid_t root);
/// The same for several roots with one read of /proc; each process once.
[[nodiscard]] std::vector<ProcessEntry> descendants_of(const std::vector<pid_t>& roots);

/// "pid 42, state S, child of 41: sleep 1000".
[[nodiscard]] std::string to_string(const ProcessEntry& process);

/// Name, state and wait location in the kernel of every thread of `root` and its descendants, from /proc. For
/// machines without a debugger.
[[nodiscard]] std::string kernel_stacks_of(pid_t root);

}  // namespace drover::test
