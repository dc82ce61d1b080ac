#include "tensor/memory/device_works.hpp"

#include <vector>

#include "drover/base/error.hpp"
#include "drover/device/backend.hpp"

namespace drover::tensor {

void DeviceWorks::recover_without_keeper() noexcept {
  std::vector<std::shared_ptr<DeviceWork>> works;
  {
    const MutexLock lock(mutex_);
    for (const auto& [place, work] : works_) works.push_back(work);
  }
  for (const auto& work : works) work->recover_without_keeper();
}

std::shared_ptr<ipc::TimelineTable> DeviceWorks::timelines() {
  const MutexLock lock(timelines_mutex_);
  if (timelines_ == nullptr) timelines_ = std::make_shared<ipc::TimelineTable>(membership_);
  return timelines_;
}

// Opens the device without the mutex: that may take long.
std::shared_ptr<DeviceWork> DeviceWorks::at(const Place& place) {
  require(place.is_device, "host memory has no stream", "name a device, e.g. cuda:0 or host:0");
  {
    const MutexLock lock(mutex_);
    if (const auto known = works_.find(place); known != works_.end()) return known->second;
  }
  Device& device = backend_of(place.backend).open(place.index);
  const auto made = std::make_shared<DeviceWork>(device, ordering_, membership_, timelines());
  const MutexLock lock(mutex_);
  return works_.try_emplace(place, made).first->second;  // another thread's, if that was faster
}

}  // namespace drover::tensor
