// ipc/session_watch.hpp: looking at the session from time to time while waiting.
#pragma once

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/bell.hpp"

namespace drover {

/// Made when a wait begins to sleep. Looks by the clock, and not only when a sleep was as long as it may be: signals
/// and wake-ups that come more often would otherwise keep a waiter from ever learning that its session is over.
class SessionWatch {
 public:
  /// Looks at nothing yet.
  explicit SessionWatch(const Membership& membership) : membership_(membership) {}

  /// Called after each sleep; `was_woken` says whether it ended before its time. Throws what `membership.check()`
  /// throws.
  void after_sleep(bool was_woken) {
    if (was_woken && !next_.has_passed()) return;
    membership_.check();
    next_ = Deadline::after(kLongestSleep);
  }

 private:
  const Membership& membership_;
  Deadline next_ = Deadline::after(kLongestSleep);
};

}  // namespace drover
