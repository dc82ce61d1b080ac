// benchmarks/support/rates.hpp: how many things per second workers do, seen from outside while they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/board.hpp"

namespace drover::bench {

/// Which workers are watched, and how.
struct Watched {
  std::size_t first = 0;  ///< number of the first worker
  std::size_t count = 1;  ///< how many
  bool is_noted = false;  ///< whether they note when each thing came: for things so large that a window holds few
};

/// How long it takes.
struct RatePace {
  std::int64_t warm_ns = 0;        ///< before anything is counted
  std::uint64_t warm_least = 1;    ///< things that come before anything is counted
  std::int64_t window_ns = 0;      ///< one rate is taken over so long
  std::uint64_t window_least = 1;  ///< things in a window, however long they take
  std::uint32_t windows = 1;       ///< rates taken
};

/// How many things all of them did.
[[nodiscard]] std::uint64_t count_all(const Board& board, const Watched& watched) noexcept;

/// The rate of all together in each window, per second. Throws if nothing comes any more.
[[nodiscard]] std::vector<double> watch_rates(const Board& board, const Watched& watched, const RatePace& pace);

}  // namespace drover::bench
