// observe/board_reader.hpp: finds the boards of pools among the open files of processes, and maps them.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "drover/base/mapping.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover::observe {

/// A board, and the processes that have it open.
struct FoundBoard {
  std::vector<pid_t> holders;  ///< processes that have it open, in rising order
  Mapping memory;              ///< empty if it cannot be read
  std::string problem;         ///< why it cannot be read

  /// Requires: problem is empty.
  [[nodiscard]] pool::Board& board() const noexcept { return *reinterpret_cast<pool::Board*>(memory.data()); }
  /// Whether the process has the board open, and so may be a worker of the pool.
  [[nodiscard]] bool is_held_by(pid_t pid) const noexcept;
};

/// Each board once, with all its holders. Trusts nothing: files that only look like boards are reported in `problem`.
[[nodiscard]] std::vector<FoundBoard> find_boards(const std::filesystem::path& proc = "/proc");

}  // namespace drover::observe
