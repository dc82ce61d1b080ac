// device/host/work_queue.hpp: the queue and thread of an emulated stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"

namespace drover::device::host {

/// The work of one stream, shared by the stream, its thread and its waiters. Outlives the stream until the submitted
/// work is complete.
class WorkQueue {
 public:
  /// Starts the thread. Throws `Errc::limit_reached` if the system allows no more threads.
  static std::shared_ptr<WorkQueue> start(std::chrono::microseconds latency);

  /// Identifies the queue for Device::borrow_stream: its address, which is never dereferenced.
  [[nodiscard]] std::uintptr_t native() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }
  /// Adds work, to run after all earlier work. Throws `Errc::invalid_argument` if the queue is closed.
  void submit(std::function<void()> work) DROVER_EXCLUDES(mutex_);
  /// Accepts no more work; the thread ends after the last piece.
  void close() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_closed() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_idle() const DROVER_EXCLUDES(mutex_);
  /// Waits for all work submitted before the call.
  WaitResult wait(Deadline deadline) const DROVER_EXCLUDES(mutex_);

 private:
  void run(std::chrono::microseconds latency);
  /// Waits for the next piece; empty if the queue is closed and drained.
  std::function<void()> next() DROVER_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::deque<std::function<void()>> work_ DROVER_GUARDED_BY(mutex_);
  std::uint64_t submitted_ DROVER_GUARDED_BY(mutex_) = 0;
  std::uint64_t completed_ DROVER_GUARDED_BY(mutex_) = 0;
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
};

}  // namespace drover::device::host
