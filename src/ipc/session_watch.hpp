// ipc/session_watch.hpp: looking at the session from time to time while waiting.
#pragma once

#include <chrono>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover {

/// Longest sleep without looking at the session.
inline constexpr std::chrono::milliseconds kLongestSleep{100};

/// Made when a wait begins to sleep. Looks by the clock, and not only when a sleep was as long as it may be: signals
/// and wake-ups that come more often would otherwise keep a waiter from ever learning that its session is over.
class SessionWatch {
 public:
  /// Looks at nothing yet.
  explicit SessionWatch(const Membership& membership) : membership_(membership) {}

  /// Called after each sleep. Throws what `membership.check()` throws.
  void after_sleep() {
    if (!next_.has_passed()) return;
    membership_.check();
    next_ = Deadline::after(kLongestSleep);
  }

 private:
  const Membership& membership_;
  Deadline next_ = Deadline::after(kLongestSleep);
};

}  // namespace drover
