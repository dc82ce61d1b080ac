// pool/watch/read_board.hpp: from the words of a board to values that can be trusted to be well formed.
#pragma once

#include "drover/base/clock.hpp"
#include "drover/pool/board_reading.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover {

/// One look, at `now`. The board may hold anything and change meanwhile: counts are cut to what there is room for,
/// texts are ended and made printable, times in the future are no time at all.
[[nodiscard]] BoardReading read_board(const Board& board, Clock::time_point now = Clock::now());

/// One worker of it. Requires: slot < kMostBoardWorkers.
[[nodiscard]] WorkerReading read_worker(const Board& board, std::size_t slot, Clock::time_point now = Clock::now());

}  // namespace drover
