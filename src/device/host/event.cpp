#include "device/host/event.hpp"

#include <new>
#include <utility>

#include "base/activity.hpp"
#include "device/fork_guard.hpp"
#include "device/own.hpp"
#include "drover/base/error.hpp"

namespace drover::device::host {

void EventRecord::complete() {
  {
    const MutexLock lock(mutex_);
    time_ = Clock::now();
  }
  changed_.notify_all();
}

WaitResult EventRecord::wait(Deadline deadline) const {
  const MutexLock lock(mutex_);
  if (time_) return WaitResult::done;
  const ActivityMark mark("event.synchronize");
  while (!time_) {
    if (deadline.is_never()) {
      changed_.wait(mutex_);
    } else if (changed_.wait_until(mutex_, deadline.moment()) == std::cv_status::timeout && !time_) {
      return WaitResult::timed_out;
    }
  }
  return WaitResult::done;
}

std::optional<Clock::time_point> EventRecord::time() const {
  const MutexLock lock(mutex_);
  return time_;
}

HostEvent::~HostEvent() {
  // A forked child may have copied another thread's wait half way: leak the record, and take no lock.
  if (!fork_guard::is_forked_child()) return;
  static_cast<void>(new (std::nothrow) std::shared_ptr<EventRecord>(latest_));
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): on purpose, in a process that can only exit

std::shared_ptr<EventRecord> HostEvent::latest() const {
  const MutexLock lock(mutex_);
  return latest_;
}

void HostEvent::set_latest(std::shared_ptr<EventRecord> record) {
  const MutexLock lock(mutex_);
  latest_ = std::move(record);
}

bool HostEvent::has_happened() const { return synchronize(Deadline::after({})) == WaitResult::done; }

WaitResult HostEvent::synchronize(Deadline deadline) const {
  fork_guard::check();
  const auto record = latest();
  return record == nullptr ? WaitResult::done : record->wait(deadline);
}

Clock::time_point HostEvent::time() const {
  const auto record = latest();
  const auto happened = record == nullptr ? std::nullopt : record->time();
  if (!happened) {
    throw Error(Errc::invalid_argument, "the time of an event was requested before it has happened",
                "record the event and synchronize it first");
  }
  return *happened;
}

double HostEvent::milliseconds_since(const StreamEvent& earlier) const {
  fork_guard::check();
  const auto begin = own<const HostEvent>(earlier).time();
  return std::chrono::duration<double, std::milli>(time() - begin).count();
}

}  // namespace drover::device::host
