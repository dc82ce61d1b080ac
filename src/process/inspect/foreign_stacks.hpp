// process/inspect/foreign_stacks.hpp: native stacks of another process, read by an installed debugger.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"

namespace drover::process {

/// The output of a debugger, or the reason why there is none.
struct ForeignStacks {
  std::vector<std::string> lines;  ///< a line per thread, each followed by a line per frame
  std::string problem;             ///< human-readable, with the remedy; empty if there are lines
};

/// A program that prints stacks.
struct StackTool {
  std::string path;                    ///< of the executable
  std::vector<std::string> arguments;  ///< before the process id
  std::vector<std::string> tail;       ///< after it
};

/// Finds eu-stack or gdb in the directories of `path`, a colon-separated list like PATH.
[[nodiscard]] std::optional<StackTool> find_stack_tool(const std::string& path);

/// Runs `tool` to read the stacks of a process, which is stopped meanwhile. Waits until the deadline, then one more
/// second for the tool to die. Skips a process with a thread in state D, since attaching to it would block. Never
/// throws for a failure of the tool.
[[nodiscard]] ForeignStacks read_foreign_stacks(pid_t pid, const std::optional<StackTool>& tool, Deadline deadline);
/// Uses the tool found in PATH.
[[nodiscard]] ForeignStacks read_foreign_stacks(pid_t pid, Deadline deadline);

}  // namespace drover::process
