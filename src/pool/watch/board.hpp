// pool/watch/board.hpp: the mapping of a board, and snapshots of it.
#pragma once

#include <cstddef>
#include <string_view>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "pool/watch/board_layout.hpp"
#include "pool/watch/board_reading.hpp"

namespace drover::pool {

/// A board, as mapped by its pool or one of its workers.
class OwnBoard {
 public:
  /// Makes a board. Throws if its memory file cannot be made.
  [[nodiscard]] static OwnBoard make(std::string_view pool_name);
  /// Maps the board of the application. Throws `Errc::corrupt`.
  [[nodiscard]] static OwnBoard open(Fd file);

  [[nodiscard]] Board& board() const noexcept { return *board_; }
  [[nodiscard]] BoardWorker& worker(std::size_t index) const { return board_->workers.at(index); }
  [[nodiscard]] const Fd& file() const noexcept { return file_; }

 private:
  OwnBoard(Fd file, Mapping mapping) noexcept;

  Fd file_;  // kept open, because `drover ps` finds the board by it
  Mapping mapping_;
  Board* board_;
};

/// Truncates `text` to fit.
template <std::size_t Bytes>
void set_text(BoardText<Bytes>& to, std::string_view text) noexcept {
  to.fill('\0');
  text.copy(to.data(), Bytes - 1);
}

/// Nanoseconds of the monotonic clock, which all processes share.
[[nodiscard]] std::uint64_t board_now() noexcept;

/// Takes a snapshot. The board may hold anything and change meanwhile: counts are clamped, texts are terminated and
/// made printable, and times in the future count as zero.
[[nodiscard]] BoardReading read_board(const Board& board, Clock::time_point now = Clock::now());

/// Takes a snapshot of one worker. Requires: slot < kMostBoardWorkers.
[[nodiscard]] WorkerReading read_worker(const Board& board, std::size_t slot, Clock::time_point now = Clock::now());

}  // namespace drover::pool
