#include "device/fork_guard.hpp"
#include "device/host/stream.hpp"
#include "device/own.hpp"
#include "drover/base/error.hpp"

namespace drover::host {

std::uint64_t EventState::submit() {
  const MutexLock lock(mutex_);
  return ++submitted_;
}

void EventState::complete(std::uint64_t number) {
  {
    const MutexLock lock(mutex_);
    if (number > completed_) {  // records of one event in several streams may finish out of order
      completed_ = number;
      time_ = Clock::now();
    }
  }
  changed_.notify_all();
}

std::uint64_t EventState::latest() const {
  const MutexLock lock(mutex_);
  return submitted_;
}

WaitResult EventState::wait(std::uint64_t number, Deadline deadline) const {
  const MutexLock lock(mutex_);
  while (completed_ < number) {
    if (deadline.is_never()) {
      changed_.wait(mutex_);
    } else if (changed_.wait_until(mutex_, deadline.moment()) == std::cv_status::timeout && completed_ < number) {
      return WaitResult::timed_out;
    }
  }
  return WaitResult::done;
}

Clock::time_point EventState::time() const {
  const MutexLock lock(mutex_);
  require(submitted_ > 0 && completed_ == submitted_, "the time of an event was asked for before it has happened",
          "record the event and synchronize it first");
  return time_;
}

bool HostEvent::has_happened() const {
  fork_guard::check();
  return state_->wait(state_->latest(), Deadline::after({})) == WaitResult::done;
}

WaitResult HostEvent::synchronize(Deadline deadline) const {
  fork_guard::check();
  return state_->wait(state_->latest(), deadline);
}

double HostEvent::milliseconds_since(const Event& earlier) const {
  fork_guard::check();
  const auto begin = own<const HostEvent>(earlier).state_->time();
  return std::chrono::duration<double, std::milli>(state_->time() - begin).count();
}

}  // namespace drover::host
