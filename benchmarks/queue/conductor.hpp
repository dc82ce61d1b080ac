// benchmarks/queue/conductor.hpp: a step of the benchmark: one cell of one contender, with its workers.
#pragma once

#include <cstdint>
#include <vector>

#include "queue/workload.hpp"
#include "support/rates.hpp"

namespace drover::bench {

/// The length of steps.
struct Pace {
  RatePace rates;                  ///< of messages
  std::int64_t sampling_ns = 0;    ///< for all samples of workers
  std::uint32_t warm_samples = 0;  ///< unrecorded samples of small messages; fewer of large ones
  std::uint32_t most_samples = 0;  ///< limit of recorded samples
};

/// Runs steps, one at a time.
class Conductor {
 public:
  /// Requires: the crew has workers for the largest cell.
  Conductor(Crew& crew, const Pace& pace);

  /// Measures once: messages per second for Metric::messages, otherwise nanoseconds. Throws if a message is lost.
  [[nodiscard]] std::vector<double> measure(const Cell& cell, std::uint32_t contender);

 private:
  struct Role {
    Part part;
    std::uint32_t index;
  };
  struct Ways {
    Endpoint there;
    Endpoint back;
  };

  [[nodiscard]] static std::vector<Role> roles_of(const Cell& cell, const Contender& contender);
  void open(const Cell& cell, std::uint32_t contender, const std::vector<Role>& roles, const Ways& ways);
  void give_order(std::size_t worker, const Order& order, const Ways& ways);
  void tell_all(const std::vector<Role>& roles, const char* text);
  [[nodiscard]] std::vector<double> rates(const Cell& cell);
  void stop(const Cell& cell, const Watched& consumers);

  Crew& crew_;
  Pace pace_;
  std::vector<int> cores_;
};

}  // namespace drover::bench
