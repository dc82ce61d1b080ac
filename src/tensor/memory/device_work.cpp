#include "tensor/memory/device_work.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/timeline.hpp"
#include "tensor/memory/host_registrations.hpp"

namespace drover::tensor {
namespace {

// How long a wait sleeps before it checks that session and device still exist.
constexpr std::chrono::milliseconds kWorkPause{20};

Deadline sooner(Deadline deadline, std::chrono::milliseconds most) {
  return Deadline::at(std::min(deadline.moment(), Deadline::after(most).moment()));
}

}  // namespace

WaitResult wait_for_point(ipc::TimelineTable& timelines, const ipc::TimelinePoint& point,
                          const Membership& membership, Deadline deadline) {
  while (timelines.state_of(point) == ipc::PointState::pending) {
    if (deadline.has_passed()) return WaitResult::timed_out;
    membership.check();
    static_cast<void>(timeline_wait(timelines.word(point.slot), point.value, sooner(deadline, kWorkPause)));
  }
  return WaitResult::done;
}

DeviceWork::DeviceWork(Device& device, Ordering ordering, std::shared_ptr<Membership> membership,
                       std::shared_ptr<ipc::TimelineTable> timelines)
    : device_(device),
      membership_(std::move(membership)),
      timelines_(std::move(timelines)),
      stream_(device.create_stream()) {
  if (ordering == Ordering::host || !device.has_timelines()) return;
  try {
    take_timeline();
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());  // falls back to waits on the host
  }
}

void DeviceWork::take_timeline() {
  registration_ = register_once(device_, timelines_->memory());
  slot_ = timelines_->take();
  if (!slot_) {
    throw Error(Errc::limit_reached,
                "all timelines of the session are in use, so this process orders its work on the host",
                "use devices in fewer processes at once");
  }
  const MutexLock lock(mutex_);
  next_ = timelines_->submitted(*slot_) + 1;
}

DeviceWork::~DeviceWork() {
  if (membership_->self() == kNobody) {    // a forked child, where no device may be touched
    static_cast<void>(stream_.release());  // NOLINT(bugprone-unused-return-value): leaked on purpose
    static_cast<void>(mark_.release());    // NOLINT(bugprone-unused-return-value): likewise
    return;
  }
  try {
    finish();
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
  if (slot_) timelines_->give_back(*slot_);
}

// The value is signalled before it is noted as submitted, which promises other processes that it will be reached.
void DeviceWork::signal(std::uint64_t ticket) {
  if (ticket < next_ || is_lost_) return;
  stream_->signal(timelines_->word(slot()), next_);
  timelines_->note_submitted(slot(), next_);
  ++next_;
}

// A wait refers to the latest record of an event, so one event can be recorded again at once.
StreamEvent& DeviceWork::mark() {
  if (mark_ == nullptr) mark_ = device_.create_event();
  return *mark_;
}

std::uint64_t DeviceWork::follow(Stream& other) {
  const MutexLock lock(mutex_);
  other.record(mark());
  stream_->wait(mark());
  return next_;
}

std::optional<std::uint64_t> DeviceWork::follow_default_stream() {
  const auto stream = device_.borrow_stream(kDefaultStream);
  if (stream->is_capturing()) return std::nullopt;
  return follow(*stream);
}

void DeviceWork::lead(Stream& other) {
  const MutexLock lock(mutex_);
  stream_->record(mark());
  other.wait(mark());
}

ipc::TimelinePoint DeviceWork::point_of(std::uint64_t ticket) {
  const MutexLock lock(mutex_);
  signal(ticket);
  return {.value = ticket, .slot = slot(), .pid = ::getpid()};
}

// Work that is signalled only now is not queried: a later query, here or in another process, finds a fault.
std::optional<ipc::TimelinePoint> DeviceWork::pending_point_of(std::uint64_t ticket) {
  const MutexLock lock(mutex_);
  const bool is_new = ticket >= next_ && !is_lost_;
  signal(ticket);
  if (!is_new) static_cast<void>(is_stream_idle());
  if (is_reached(ticket)) return std::nullopt;
  return ipc::TimelinePoint{.value = ticket, .slot = slot(), .pid = ::getpid()};
}

bool DeviceWork::is_idle() {
  const MutexLock lock(mutex_);
  return is_stream_idle();
}

std::uint64_t DeviceWork::latest() {
  const MutexLock lock(mutex_);
  return next_;
}

// After a fault the word is in another epoch, and its value means nothing.
bool DeviceWork::is_reached(std::uint64_t ticket) {
  if (slot_) {
    const std::uint64_t done = timelines_->word(*slot_).load();
    return ipc::epoch_of(done) == ipc::epoch_of(ticket) && done >= ticket;
  }
  if (done_ < ticket && is_stream_idle()) done_ = next_++;
  return done_ >= ticket;
}

// A stream whose device failed stores nothing any more: its timeline is marked lost, so that waits elsewhere end.
bool DeviceWork::is_stream_idle() {
  try {
    return stream_->is_idle();
  } catch (const Error& error) {
    if (error.code() == Errc::device_fault && slot_ && !is_lost_) timelines_->lose(*slot_);
    is_lost_ = is_lost_ || error.code() == Errc::device_fault;
    throw;
  }
}

bool DeviceWork::is_done(std::uint64_t ticket) {
  const MutexLock lock(mutex_);
  if (slot_) signal(ticket);
  if (is_reached(ticket)) return true;
  return slot_ && is_stream_idle() && is_reached(ticket);  // queries the stream, which reports faults
}

WaitResult DeviceWork::wait(std::uint64_t ticket, Deadline deadline) {
  for (;;) {
    if (is_done(ticket)) return WaitResult::done;
    if (deadline.has_passed()) return WaitResult::timed_out;
    if (waits_for_others()) membership_->check();
    const Deadline next_check = sooner(deadline, kWorkPause);
    if (slot_) {
      static_cast<void>(timeline_wait(timelines_->word(*slot_), ticket, next_check));
    } else {
      static_cast<void>(stream_->synchronize(next_check));
    }
  }
}

bool DeviceWork::waits_for_others() {
  const MutexLock lock(mutex_);
  std::erase_if(awaited_, [&](const auto& each) { return timelines_->state_of(each) != ipc::PointState::pending; });
  return !awaited_.empty();
}

void DeviceWork::finish() {
  const auto is_idle = [this] {
    const MutexLock lock(mutex_);
    return is_stream_idle();
  };
  while (!is_idle()) {
    recover_without_keeper();
    static_cast<void>(stream_->synchronize(Deadline::after(kWorkPause)));
  }
}

// The keeper frees streams that wait for dead processes. Without a keeper, each process frees its own.
void DeviceWork::recover_without_keeper() noexcept {
  try {
    membership_->check();
  } catch (const Error&) {
    const MutexLock lock(mutex_);
    for (const auto& point : awaited_) timelines_->recover_without_keeper(point);
  }
}

void DeviceWork::wait_for(const ipc::TimelinePoint& point) {
  if (!slot_) {
    static_cast<void>(wait_for_point(*timelines_, point, *membership_, Deadline::never()));
    return;
  }
  static_cast<void>(waits_for_others());  // drops reached points
  const MutexLock lock(mutex_);
  if (std::ranges::find(awaited_, point) != awaited_.end()) return;
  stream_->wait(timelines_->word(point.slot), point.value);
  awaited_.push_back(point);
}

bool has_ended(const WorkTicket& use) noexcept {
  try {
    return use.work->is_done(use.ticket);
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());
    return error.code() == Errc::device_fault;
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    return false;  // queried again later
  }
}

}  // namespace drover::tensor
