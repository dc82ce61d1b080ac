// ipc/wake/session_watch.hpp: checks the session periodically during a wait.
#pragma once

#include <chrono>

#include "base/activity.hpp"
#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/object/left_alone.hpp"

namespace drover::ipc {

/// Longest sleep without a check of the session.
inline constexpr std::chrono::milliseconds kLongestSleep{100};

/// Made when a wait begins to sleep. Checks by the clock, not only after sleeps of full length: frequent signals and
/// wake-ups would otherwise keep a waiter from noticing that its session is over. While it lives, the thread's
/// activity is `activity`.
class SessionWatch {
 public:
  SessionWatch(const Membership& membership, const char* activity) : membership_(membership), mark_(activity) {}
  /// Also checks whether anybody is left who could end a wait for `object`, unless the wait has a deadline.
  SessionWatch(const SharedObject& object, const char* activity, Deadline deadline)
      : membership_(object.membership()), object_(deadline.is_never() ? &object : nullptr), mark_(activity) {}

  /// Called after each sleep. Throws what `membership.check()` throws.
  void after_sleep() {
    if (!next_.has_passed()) return;
    membership_.check();
    is_alone_ = object_ != nullptr && is_left_alone(*object_);
    next_ = Deadline::after(kLongestSleep);
  }

  /// Called when what is waited for was not there after `after_sleep`. Throws `Errc::peer_lost` if nobody was left
  /// then.
  void fail_if_alone() const {
    if (is_alone_) fail_left_alone(*object_);
  }

 private:
  const Membership& membership_;
  const SharedObject* object_ = nullptr;
  ActivityMark mark_;
  Deadline next_ = Deadline::after(kLongestSleep);
  bool is_alone_ = false;
};

}  // namespace drover::ipc
