#include "observe/board_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "process/inspect/proc_files.hpp"

namespace drover::observe {
namespace {

using FileKey = std::pair<dev_t, ino_t>;

std::string link_of_boards() { return fmt::format("/memfd:{}", pool::kBoardFileName); }

bool is_board_link(std::string_view link) {
  const auto name = link_of_boards();
  return link == name || link == name + " (deleted)";
}

// A board is sealed, so that no process can shorten it during reads.
void map_board(const std::filesystem::path& path, FoundBoard& found) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    found.problem = fmt::format("its memory cannot be opened: {}", std::strerror(errno));
    return;
  }
  try {
    const auto bytes = check_memory_file(file);
    if (bytes < sizeof(pool::Board)) {
      found.problem =
          fmt::format("its memory has {} bytes instead of {}: another version of drover", bytes, sizeof(pool::Board));
      return;
    }
    found.memory = Mapping::shared(file, sizeof(pool::Board));
  } catch (const Error& error) {
    found.problem = error.message();
    return;
  }
  const pool::Board& board = found.board();
  if (board.magic != pool::kBoardMagic || board.version != pool::kBoardVersion) {
    found.problem = fmt::format("its memory has version {} instead of {}: use the `drover` of the same version",
                                board.version, pool::kBoardVersion);
    found.memory.reset();
  }
}

}  // namespace

bool FoundBoard::is_held_by(pid_t pid) const noexcept { return std::ranges::binary_search(holders, pid); }

std::vector<FoundBoard> find_boards(const std::filesystem::path& proc) {
  std::map<FileKey, FoundBoard> boards;
  for (const pid_t pid : process::numbers_in(proc)) {
    const auto folder = proc / std::to_string(pid) / "fd";
    for (const int number : process::numbers_in(folder)) {
      const auto path = folder / std::to_string(number);
      if (!is_board_link(process::read_proc_link(path))) continue;
      struct stat status{};
      if (::stat(path.c_str(), &status) != 0) continue;  // closed meanwhile, or of another user
      auto& found = boards[{status.st_dev, status.st_ino}];
      if (found.holders.empty()) map_board(path, found);
      if (!found.is_held_by(pid)) found.holders.push_back(pid);
    }
  }
  std::vector<FoundBoard> list;
  for (auto& [key, found] : boards) list.push_back(std::move(found));
  return list;
}

}  // namespace drover::observe
