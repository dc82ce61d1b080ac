// tensor/memory/backoff_poller.hpp: calls a function again and again, on a thread that exists only while needed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "drover/base/mutex.hpp"

namespace drover::tensor {

/// Calls `poll` one period after `start`, and then at doubling intervals, up to 16 periods, until it returns false.
/// Safe for all threads.
class BackoffPoller {
 public:
  /// `poll` is called without any mutex of this class, and must not throw.
  BackoffPoller(std::chrono::milliseconds period, std::function<bool()> poll);
  /// Same as `stop`.
  ~BackoffPoller();
  BackoffPoller(const BackoffPoller&) = delete;
  BackoffPoller& operator=(const BackoffPoller&) = delete;

  /// Polls one period from now. If no thread can be started, logs that and does not poll.
  void start() noexcept DROVER_EXCLUDES(mutex_);
  /// Waits for a poll in progress, and prevents all others. Must not be called by `poll`. In a forked child, which
  /// has no such thread, waits for nothing.
  void stop() noexcept DROVER_EXCLUDES(mutex_);

 private:
  struct State;

  const std::shared_ptr<State> state_;  // shared: with the thread, which a forked child has not
  const int process_;
  Mutex mutex_;
  std::thread thread_ DROVER_GUARDED_BY(mutex_);
};

}  // namespace drover::tensor
