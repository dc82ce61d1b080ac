// ipc/wake/session_watch.hpp: looking at the session from time to time while waiting.
#pragma once

#include <chrono>

#include "base/activity.hpp"
#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover {

/// Longest sleep without looking at the session.
inline constexpr std::chrono::milliseconds kLongestSleep{100};

/// Made when a wait begins to sleep. Looks by the clock, and not only when a sleep was as long as it may be: signals
/// and wake-ups that come more often would otherwise keep a waiter from ever learning that its session is over. While
/// it lives, who watches the thread sees it inside of `activity`.
class SessionWatch {
 public:
  /// Looks at nothing yet.
  SessionWatch(const Membership& membership, const char* activity) : membership_(membership), mark_(activity) {}

  /// Called after each sleep. Throws what `membership.check()` throws.
  void after_sleep() {
    if (!next_.has_passed()) return;
    membership_.check();
    next_ = Deadline::after(kLongestSleep);
  }

 private:
  const Membership& membership_;
  ActivityMark mark_;
  Deadline next_ = Deadline::after(kLongestSleep);
};

}  // namespace drover
