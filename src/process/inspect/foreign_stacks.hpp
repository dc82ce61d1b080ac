// process/inspect/foreign_stacks.hpp: native stacks of a process that is not ours, by a debugger that is installed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"

namespace drover {

/// What a debugger said of a process, or why there is nothing.
struct ForeignStacks {
  std::vector<std::string> lines;  ///< one per frame, and one per thread before its frames
  std::string problem;             ///< for people, with the remedy; empty if there are lines
};

/// A program that prints stacks.
struct StackTool {
  std::string path;                    ///< of the program
  std::vector<std::string> arguments;  ///< before the process id
  std::vector<std::string> tail;       ///< after it
};

/// eu-stack or gdb, the first that lies in a folder of `path` (as PATH: parted by colons).
[[nodiscard]] std::optional<StackTool> find_stack_tool(const std::string& path);

/// Asks `tool` for the stacks of a process, which stands still meanwhile. Waits no longer than the deadline and a
/// second for the tool to die. A process with a thread in state D is not asked: whoever attaches to it would wait
/// with it. Never throws for what the tool does.
[[nodiscard]] ForeignStacks read_foreign_stacks(pid_t pid, const std::optional<StackTool>& tool, Deadline deadline);
/// The same with what PATH leads to.
[[nodiscard]] ForeignStacks read_foreign_stacks(pid_t pid, Deadline deadline);

}  // namespace drover
