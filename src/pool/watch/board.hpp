// pool/watch/board.hpp: owns the mapping of a board.
#pragma once

#include <cstddef>
#include <string_view>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover {

/// A board as its pool, or one of its workers, has it.
class OwnBoard {
 public:
  /// Makes one with room for all workers a pool may have. Throws as making memory files does.
  [[nodiscard]] static OwnBoard make(std::string_view pool_name);
  /// Maps one that came from the application.
  [[nodiscard]] static OwnBoard open(Fd file);

  [[nodiscard]] Board& board() const noexcept { return *board_; }
  [[nodiscard]] BoardWorker& worker(std::size_t index) const { return board_->workers.at(index); }
  [[nodiscard]] const Fd& file() const noexcept { return file_; }

 private:
  OwnBoard(Fd file, Mapping mapping) noexcept;

  Fd file_;  // open as long as the board is used: `drover ps` finds it by that
  Mapping mapping_;
  Board* board_;
};

/// Cuts `text` to what fits.
template <std::size_t Bytes>
void set_text(BoardText<Bytes>& to, std::string_view text) noexcept {
  to.fill('\0');
  text.copy(to.data(), Bytes - 1);
}

/// Nanoseconds of the clock that all processes share.
[[nodiscard]] std::uint64_t board_now() noexcept;

}  // namespace drover
