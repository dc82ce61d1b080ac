// pool/watch/read_board.hpp: reads a board into well-formed values.
#pragma once

#include "drover/base/clock.hpp"
#include "drover/pool/board_reading.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover {

/// Takes a snapshot. The board may hold anything and change meanwhile: counts are clamped, texts are terminated and
/// made printable, and times in the future count as zero.
[[nodiscard]] BoardReading read_board(const Board& board, Clock::time_point now = Clock::now());

/// Takes a snapshot of one worker. Requires: slot < kMostBoardWorkers.
[[nodiscard]] WorkerReading read_worker(const Board& board, std::size_t slot, Clock::time_point now = Clock::now());

}  // namespace drover
