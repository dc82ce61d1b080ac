#include "device/host/work_queue.hpp"

#include <system_error>
#include <thread>
#include <utility>

#include "base/activity.hpp"
#include "base/signals_blocked.hpp"
#include "base/thread.hpp"
#include "drover/base/error.hpp"

namespace drover::device::host {

std::shared_ptr<WorkQueue> WorkQueue::start(std::chrono::microseconds latency) {
  auto queue = std::make_shared<WorkQueue>();
  const SignalsBlocked blocked;
  start_thread("the thread of an emulated stream", [queue, latency] { queue->run(latency); }).detach();
  return queue;
}

void WorkQueue::run(std::chrono::microseconds latency) {
  while (auto piece = next()) {
    if (latency.count() > 0) std::this_thread::sleep_for(latency);
    piece();
    piece = nullptr;  // release what it holds before waiters see it as complete
    {
      const MutexLock lock(mutex_);
      ++completed_;
    }
    changed_.notify_all();
  }
}

std::function<void()> WorkQueue::next() {
  const MutexLock lock(mutex_);
  while (work_.empty() && !is_closed_) changed_.wait(mutex_);
  if (work_.empty()) return nullptr;
  auto piece = std::move(work_.front());
  work_.pop_front();
  return piece;
}

void WorkQueue::submit(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    require(!is_closed_, "work was submitted to a stream whose owner has destroyed it",
            "keep a stream alive while it is borrowed");
    work_.push_back(std::move(work));
    ++submitted_;
  }
  changed_.notify_all();
}

void WorkQueue::close() {
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

bool WorkQueue::is_closed() const {
  const MutexLock lock(mutex_);
  return is_closed_;
}

bool WorkQueue::is_idle() const {
  const MutexLock lock(mutex_);
  return completed_ == submitted_;
}

WaitResult WorkQueue::wait(Deadline deadline) const {
  const MutexLock lock(mutex_);
  const std::uint64_t target = submitted_;
  if (completed_ >= target) return WaitResult::done;
  const ActivityMark mark("stream.synchronize");
  while (completed_ < target) {
    if (deadline.is_never()) {
      changed_.wait(mutex_);
    } else if (changed_.wait_until(mutex_, deadline.moment()) == std::cv_status::timeout && completed_ < target) {
      return WaitResult::timed_out;
    }
  }
  return WaitResult::done;
}

}  // namespace drover::device::host
