// benchmarks/queue/sleeper.hpp: wakes a process that is known to be asleep.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "drover/base/fd.hpp"
#include "queue/workload.hpp"

namespace drover::bench {

/// The sleeping partner of a process that wakes it.
class Sleeper {
 public:
  /// Requires: the partner is worker 1, as in every step of two.
  Sleeper(const Order& order, Post& post);

  /// Repeatedly waits until the kernel reports that the partner sleeps, and a little longer, since a core that has
  /// idled only briefly wakes sooner; then calls `wake(number)` and samples the time until the partner recorded it.
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
  // The first sleep may be the wait for the start.
  static constexpr std::uint64_t kWarm = 3;

  void wait_until_asleep() const;
  [[nodiscard]] std::int64_t wait_until_awake(std::uint64_t number) const;

  const Order& order_;
  Post& post_;
  Fd status_;
};

}  // namespace drover::bench
