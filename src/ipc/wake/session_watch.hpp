// ipc/wake/session_watch.hpp: checks the session periodically during a wait.
#pragma once

#include <chrono>

#include "base/activity.hpp"
#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {

/// Longest sleep without a check of the session.
inline constexpr std::chrono::milliseconds kLongestSleep{100};

/// Made when a wait begins to sleep. Checks by the clock, not only after sleeps of full length: frequent signals and
/// wake-ups would otherwise keep a waiter from noticing that its session is over. While it lives, the thread's
/// activity is `activity`.
class SessionWatch {
 public:
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

}  // namespace drover::ipc
