// device/cuda/polling.hpp: waits for the device with a deadline, which the driver's own waits lack.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/activity.hpp"
#include "device/cuda/error.hpp"
#include "drover/base/clock.hpp"

namespace drover::device::cuda {

/// Interprets the result of a query: true if done, false if not yet; throws for an error.
inline bool is_done(CUresult result, const char* call, const CallFacts& facts) {
  if (result == kNotReady) return false;
  check(result, call, facts);
  return true;
}

/// Polls, at first without a pause, until `is_done()` or the deadline. A longer wait is marked as `activity`.
template <class IsDone>
WaitResult poll_until(const char* activity, IsDone is_done, Deadline deadline) {
  using std::chrono::microseconds;
  constexpr int kQuickLooks = 200;  // some tens of microseconds: most waits end here
  constexpr microseconds kLongestPause(200);
  for (int look = 0; look < kQuickLooks; ++look) {
    if (is_done()) return WaitResult::done;
    if (deadline.has_passed()) return WaitResult::timed_out;
  }
  const ActivityMark mark(activity);
  for (microseconds pause(0);; std::this_thread::sleep_for(pause)) {
    if (is_done()) return WaitResult::done;
    if (deadline.has_passed()) return WaitResult::timed_out;
    pause = std::min(pause + microseconds(5), kLongestPause);
  }
}

}  // namespace drover::device::cuda
