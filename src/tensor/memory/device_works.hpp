// tensor/memory/device_works.hpp: the work of one Memory on all its devices.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "drover/base/mutex.hpp"
#include "tensor/memory/device_work.hpp"

namespace drover::tensor {

/// A registry: one DeviceWork for each device, and the timelines of the session. Safe for all threads.
class DeviceWorks {
 public:
  DeviceWorks(std::shared_ptr<Membership> membership, Ordering ordering)
      : membership_(std::move(membership)), ordering_(ordering) {}

  /// The work on a device; created on first use. Throws as `Backend::open`.
  [[nodiscard]] std::shared_ptr<DeviceWork> at(const Place& place) DROVER_EXCLUDES(mutex_);
  /// The timelines of the session; opened on first use.
  [[nodiscard]] std::shared_ptr<ipc::TimelineTable> timelines() DROVER_EXCLUDES(timelines_mutex_);
  /// Calls DeviceWork::recover_without_keeper for all: before a caller waits for a whole device.
  void recover_without_keeper() noexcept DROVER_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<Membership> membership_;
  const Ordering ordering_;
  Mutex timelines_mutex_;
  std::shared_ptr<ipc::TimelineTable> timelines_ DROVER_GUARDED_BY(timelines_mutex_);  // shared: with every work
  Mutex mutex_;
  std::map<Place, std::shared_ptr<DeviceWork>> works_ DROVER_GUARDED_BY(mutex_);
};

}  // namespace drover::tensor
