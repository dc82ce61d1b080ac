// observe/board_reader.hpp: finds boards among the open files of processes and maps them.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "drover/base/mapping.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover::observe {

/// A board that was found.
struct FoundBoard {
  std::vector<pid_t> holders;  ///< processes that have it open, in rising order
  Mapping memory;              ///< empty if it cannot be read
  std::string problem;         ///< why not

  /// Requires: problem is empty.
  [[nodiscard]] Board& board() const noexcept { return *reinterpret_cast<Board*>(memory.data()); }
  /// Whether the process has the board open, and so may be asked as a worker.
  [[nodiscard]] bool is_held_by(pid_t pid) const noexcept;
};

/// Each board once, whoever has it open. Files that are none, or only say so, are problems or left out; never a
/// crash.
[[nodiscard]] std::vector<FoundBoard> find_boards(const std::filesystem::path& proc = "/proc");

}  // namespace drover::observe
