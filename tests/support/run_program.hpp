// tests/support/run_program.hpp: a program run to its end, with what it printed.
#pragma once

#include <functional>
#include <string>

#include "drover/process/child_process.hpp"
#include "drover/process/exit_status.hpp"

namespace drover::test {

/// How a program ended and what it printed.
struct ProgramResult {
  ExitStatus status;   ///< its own, not that of programs it started
  std::string output;  ///< standard output and standard error together
};

/// Called with all output so far whenever there is more; may signal the child.
using OutputWatcher = std::function<void(ChildProcess& child, const std::string& output)>;

/// Starts a program and waits until it has ended. Descendants that outlive it and keep its output open are not
/// waited for.
[[nodiscard]] ProgramResult run_program(SpawnOptions options, const OutputWatcher& watcher = {});

}  // namespace drover::test
