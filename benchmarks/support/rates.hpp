// benchmarks/support/rates.hpp: the rates of running workers, measured from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/board.hpp"

namespace drover::bench {

/// The observed workers.
struct Watched {
  std::size_t first = 0;  ///< number of the first worker
  std::size_t count = 1;  ///< number of workers
  bool is_noted = false;  ///< whether they record arrival times, for items so large that a window holds few
};

/// The length of a measurement.
struct RatePace {
  std::int64_t warm_ns = 0;        ///< time before the first window
  std::uint64_t warm_least = 1;    ///< items before the first window
  std::int64_t window_ns = 0;      ///< shortest window
  std::uint64_t window_least = 1;  ///< fewest items in a window
  std::uint32_t windows = 1;       ///< windows, each with one rate
};

/// The items of all observed workers.
[[nodiscard]] std::uint64_t count_all(const Board& board, const Watched& watched) noexcept;

/// Their total rate per second in each window. Throws if they make no progress.
[[nodiscard]] std::vector<double> watch_rates(const Board& board, const Watched& watched, const RatePace& pace);

}  // namespace drover::bench
