// benchmarks/sync/conductor.hpp: a step of the benchmark: one cell of one contender, with its workers.
#pragma once

#include <cstdint>
#include <vector>

#include "support/rates.hpp"
#include "sync/workload.hpp"

namespace drover::bench {

/// The length of steps.
struct Pace {
  RatePace rates;                  ///< of contended locks
  std::int64_t sampling_ns = 0;    ///< for all samples of workers
  std::uint32_t warm_samples = 0;  ///< unrecorded samples
  std::uint32_t most_samples = 0;  ///< limit of recorded samples
};

/// Runs steps, one at a time.
class Conductor {
 public:
  /// Requires: the crew has workers for the largest cell.
  Conductor(Crew& crew, const Pace& pace);

  /// Whether a cell is measured as a rate, from outside.
  [[nodiscard]] static bool is_rate(const Cell& cell) noexcept;
  /// Measures once: operations per second or nanoseconds. Throws if a lock failed to exclude.
  [[nodiscard]] std::vector<double> measure(const Cell& cell, std::uint32_t contender);

 private:
  void open(const Cell& cell, std::uint32_t contender, const Made& made);
  [[nodiscard]] std::vector<double> rates(const Cell& cell);
  void tell_all(const Cell& cell, const char* text);

  Crew& crew_;
  Pace pace_;
  std::vector<int> cores_;
};

}  // namespace drover::bench
