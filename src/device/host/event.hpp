// device/host/event.hpp: events of the emulated devices.
#pragma once

#include <memory>
#include <optional>

#include "device/live.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/stream.hpp"

namespace drover::device::host {

/// One record of an event, shared by the stream that will complete it and its waiters.
class EventRecord {
 public:
  /// Marks it as having happened now.
  void complete() DROVER_EXCLUDES(mutex_);
  /// Waits until it has happened.
  WaitResult wait(Deadline deadline) const DROVER_EXCLUDES(mutex_);
  /// When it happened; nullopt if it has not.
  [[nodiscard]] std::optional<Clock::time_point> time() const DROVER_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::optional<Clock::time_point> time_ DROVER_GUARDED_BY(mutex_);
};

class HostEvent final : public StreamEvent {
 public:
  explicit HostEvent(LiveCounters& live) : live_(live.events) {}
  ~HostEvent() override;

  [[nodiscard]] bool has_happened() const override;
  WaitResult synchronize(Deadline deadline) const override;
  [[nodiscard]] double milliseconds_since(const StreamEvent& earlier) const override;

  /// The latest record; nullptr if there is none. Waiters for an earlier record are not affected by a later one.
  [[nodiscard]] std::shared_ptr<EventRecord> latest() const DROVER_EXCLUDES(mutex_);
  void set_latest(std::shared_ptr<EventRecord> record) DROVER_EXCLUDES(mutex_);

 private:
  [[nodiscard]] Clock::time_point time() const;

  LiveToken live_;
  mutable Mutex mutex_;
  std::shared_ptr<EventRecord> latest_
      DROVER_GUARDED_BY(mutex_);  // shared: may complete after the event is destroyed
};

}  // namespace drover::device::host
