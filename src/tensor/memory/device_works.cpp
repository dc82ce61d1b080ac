#include "tensor/memory/device_works.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/backend.hpp"

namespace drover {
namespace {

void wait_for_end(const WorkTicket& use, Deadline deadline) noexcept {
  try {
    static_cast<void>(use.work->wait(use.ticket, deadline));
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

void finish(DeviceWork& work) noexcept {
  try {
    work.finish();
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

}  // namespace

bool has_ended(const WorkTicket& use) noexcept {
  try {
    return use.work->is_done(use.ticket);
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());
    return error.code() == Errc::device_fault;
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    return false;  // asked again later
  }
}

// All streams first, and then what they used. In a forked child another thread may have held the mutex for ever.
DeviceWorks::~DeviceWorks() DROVER_NO_THREAD_ANALYSIS {
  if (membership_->self() == kNobody) {  // keepers of other libraries must not run here either
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): leaked on purpose; without memory the child ends here
    static_cast<void>(new std::vector<RetiredBlock>(std::move(retired_)));
    return;
  }
  for (const auto& block : take_all()) {
    for (const auto& use : block.uses) finish(*use.work);
  }
}

std::vector<std::shared_ptr<DeviceWork>> DeviceWorks::all() {
  std::vector<std::shared_ptr<DeviceWork>> works;
  const MutexLock lock(mutex_);
  for (const auto& [place, work] : works_) works.push_back(work);
  return works;
}

void DeviceWorks::bury_without_keeper() noexcept {
  for (const auto& work : all()) work->bury_without_keeper();
}

std::shared_ptr<TimelineTable> DeviceWorks::timelines() {
  const MutexLock lock(timelines_mutex_);
  if (timelines_ == nullptr) timelines_ = std::make_shared<TimelineTable>(membership_);
  return timelines_;
}

// A device is opened without the mutex: that may take long.
std::shared_ptr<DeviceWork> DeviceWorks::at(const Place& place) {
  require(place.is_device, "work in host memory was to be given to a device", "name a device: cuda:0, host:0");
  {
    const MutexLock lock(mutex_);
    if (const auto known = works_.find(place); known != works_.end()) return known->second;
  }
  Device& device = backend_of(place.backend).open(place.index);
  const auto made = std::make_shared<DeviceWork>(device, ordering_, membership_, timelines());
  const MutexLock lock(mutex_);
  return works_.try_emplace(place, made).first->second;  // another thread's, if that was first
}

void DeviceWorks::retire(RetiredBlock block) {
  const MutexLock lock(mutex_);
  retired_.push_back(std::move(block));
  retired_count_ = retired_.size();
}

// One thread at a time, so that none finds nothing while another looks. Uses are asked and waited for without the
// mutex that whoever submits work needs.
std::vector<RetiredBlock> DeviceWorks::take_ended(Deadline patience) {
  if (patience.has_passed()) {
    if (!taking_.try_lock()) return {};
  } else {
    taking_.lock();
  }
  const std::scoped_lock lock(std::adopt_lock, taking_);
  auto [ended, going_on] = sort_out(take_all(), patience);
  put_back(std::move(going_on));
  return std::move(ended);
}

bool DeviceWorks::release_ended_of_others(const std::function<void(RetiredBlock&)>& release) {
  if (!taking_.try_lock()) return true;
  const std::scoped_lock lock(std::adopt_lock, taking_);
  auto blocks = take_all();
  const auto others = std::ranges::partition(
      blocks, [](const RetiredBlock& block) { return block.keeper != nullptr || !block.slab->is_opened(); });
  auto [ended, going_on] =
      sort_out({std::make_move_iterator(others.begin()), std::make_move_iterator(others.end())}, Deadline::after({}));
  blocks.erase(others.begin(), others.end());
  std::ranges::for_each(ended, release);
  const bool has_more = !going_on.empty();
  std::ranges::move(going_on, std::back_inserter(blocks));
  put_back(std::move(blocks));
  return has_more;
}

DeviceWorks::Sorted DeviceWorks::sort_out(std::vector<RetiredBlock> blocks, Deadline patience) {
  const bool is_patient = !patience.has_passed();
  Sorted sorted;
  for (RetiredBlock& block : blocks) {
    if (is_patient) std::ranges::for_each(block.uses, [&](const auto& use) { wait_for_end(use, patience); });
    auto& into = std::ranges::all_of(block.uses, has_ended) ? sorted.ended : sorted.going_on;
    into.push_back(std::move(block));
  }
  return sorted;
}

// Those in hand still count: who needs memory waits for what the thread that has them finds out.
std::vector<RetiredBlock> DeviceWorks::take_all() {
  const MutexLock lock(mutex_);
  retired_count_ = retired_.size();
  return std::exchange(retired_, {});
}

void DeviceWorks::put_back(std::vector<RetiredBlock> blocks) {
  const MutexLock lock(mutex_);
  std::ranges::move(blocks, std::back_inserter(retired_));
  retired_count_ = retired_.size();
}

}  // namespace drover
