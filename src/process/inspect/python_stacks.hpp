// process/inspect/python_stacks.hpp: the Python frames of another process, read from its memory while it runs.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace drover::process {

/// A Python thread.
struct PythonThread {
  std::uint64_t tid = 0;            ///< thread id; 0 if the interpreter does not keep it (Python 3.10)
  std::vector<std::string> frames;  ///< "File "train.py", line 12 in step", innermost first; at most 64
};

/// The threads of the main interpreter of a process that runs CPython 3.10 to 3.13; empty for any other process, and
/// if its memory may not be read. Does not stop the process, so frames of a thread that runs may be wrong or missing;
/// whatever the memory holds, the result is bounded.
[[nodiscard]] std::vector<PythonThread> read_python_stacks(pid_t pid, const std::filesystem::path& proc = "/proc");

/// The line of the instruction with this index, from the table `co_linetable` of a code object of Python 3.`minor`
/// whose first line is `first_line`; 0 if it has none.
[[nodiscard]] int line_of_instruction(int minor, std::span<const std::byte> table, int first_line,
                                      std::int64_t index);

}  // namespace drover::process
