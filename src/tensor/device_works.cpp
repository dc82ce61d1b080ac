#include "tensor/device_works.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/select.hpp"

namespace drover {
namespace {

void wait_for_end(const WorkTicket& use) noexcept {
  try {
    static_cast<void>(use.work->wait(use.ticket, Deadline::never()));
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

}  // namespace

bool has_ended(const WorkTicket& use) noexcept {
  try {
    return use.work->is_done(use.ticket);
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    return true;
  }
}

std::shared_ptr<TimelineTable> DeviceWorks::open_timelines() {
  if (timelines_ == nullptr) timelines_ = std::make_shared<TimelineTable>(membership_);
  return timelines_;
}

std::shared_ptr<TimelineTable> DeviceWorks::timelines() {
  const MutexLock lock(mutex_);
  return open_timelines();
}

std::shared_ptr<DeviceWork> DeviceWorks::at(const Place& place) {
  require(place.is_device, "work in host memory was to be given to a device", "name a device: cuda:0, host:0");
  const MutexLock lock(mutex_);
  auto& work = works_[place];
  if (work == nullptr) {
    Device& device = backend_of(place.backend).open(place.index);
    work = std::make_shared<DeviceWork>(device, ordering_, membership_, open_timelines());
  }
  return work;
}

void DeviceWorks::retire(RetiredBlock block) {
  const MutexLock lock(mutex_);
  retired_.push_back(std::move(block));
  retired_count_ = retired_.size();
}

// Uses are asked and waited for without the mutex, which whoever submits work may need.
std::vector<RetiredBlock> DeviceWorks::take_ended(bool is_patient) {
  std::vector<RetiredBlock> ended;
  {
    const MutexLock lock(mutex_);
    ended = std::exchange(retired_, {});
    retired_count_ = 0;
  }
  std::vector<RetiredBlock> going_on;
  for (auto& block : ended) {
    if (is_patient) std::ranges::for_each(block.uses, wait_for_end);
    if (!is_patient && !std::ranges::all_of(block.uses, has_ended)) going_on.push_back(std::move(block));
  }
  std::erase_if(ended, [](const auto& block) { return !block.lease.is_open(); });
  for (auto& block : going_on) retire(std::move(block));
  return ended;
}

}  // namespace drover
