// tensor/memory/late_look.hpp: looks after something again later, on a thread that is there only while it is needed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "drover/base/mutex.hpp"

namespace drover {

/// Calls `look` some time after `begin`, and again, more and more seldom, until it returns false: at last every
/// `most_seldom` periods. Safe for all threads.
class LateLook {
 public:
  /// `look` is called without any mutex of this class, and may not throw.
  LateLook(std::chrono::milliseconds period, std::function<bool()> look, int most_seldom = 16);
  /// As `stop`.
  ~LateLook();
  LateLook(const LateLook&) = delete;
  LateLook& operator=(const LateLook&) = delete;

  /// Looks one period from now. Where no thread can be started that is logged, and nobody looks.
  void begin() noexcept DROVER_EXCLUDES(mutex_);
  /// Waits for a look that is under way; there will be no other. Not to be called by `look`. Nothing in a forked
  /// child, where there is no such thread.
  void stop() noexcept DROVER_EXCLUDES(mutex_);

 private:
  struct State;

  const std::shared_ptr<State> state_;  // shared: with the thread, which a forked child has not
  const int process_;
  Mutex mutex_;
  std::thread thread_ DROVER_GUARDED_BY(mutex_);
};

}  // namespace drover
