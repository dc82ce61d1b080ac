// tests/support/run_program.hpp: runs a program to its end and captures its output.
#pragma once

#include <functional>
#include <string>

#include "drover/process/child_process.hpp"

namespace drover::test {

/// Exit status and output of a program.
struct ProgramResult {
  ExitStatus status;   ///< of the program itself, not of programs it started
  std::string output;  ///< standard output and standard error together
};

/// Called with all output so far whenever more arrives; may signal the child.
using OutputWatcher = std::function<void(ChildProcess& child, const std::string& output)>;

/// Starts a program and waits for its end, but not for descendants that outlive it and keep its output open.
[[nodiscard]] ProgramResult run_program(SpawnOptions options, const OutputWatcher& watcher = {});

}  // namespace drover::test
