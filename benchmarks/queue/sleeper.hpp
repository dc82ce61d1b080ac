// benchmarks/queue/sleeper.hpp: waking a process that is asleep, provably.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "drover/base/fd.hpp"
#include "queue/workload.hpp"

namespace drover::bench {

/// The partner that sleeps, as the one who wakes it sees it.
class Sleeper {
 public:
  /// Requires: the partner is worker 1, as in every step of two.
  Sleeper(const Order& order, Post& post);

  /// Again and again: waits until the kernel says that the partner sleeps, and a while longer, since a core that
  /// rests only a moment wakes sooner; then calls `wake(number)` and samples how long the partner took to note it.
  template <class Wake>
  void wake_often(Wake wake) const {
    const std::int64_t begin = now_ns();
    for (std::uint64_t number = 0; number < kWarm + order_.most_samples; ++number) {
      wait_until_asleep();
      const std::int64_t called = now_ns();
      wake(number);
      const std::int64_t woke = wait_until_awake(number);
      if (number >= kWarm) post_.board().samples.add(static_cast<double>(woke - called));
      if (woke - begin > order_.budget_ns && number > kWarm + 2) return;
    }
  }

 private:
  // The first sleep may be that of a worker that waits for the start.
  static constexpr std::uint64_t kWarm = 3;

  void wait_until_asleep() const;
  [[nodiscard]] std::int64_t wait_until_awake(std::uint64_t number) const;

  const Order& order_;
  Post& post_;
  Fd status_;
};

}  // namespace drover::bench
