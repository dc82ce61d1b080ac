// tensor/memory/device_works.hpp: the work of one Memory on all its devices, and the blocks that wait for it to end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/memory/device_work.hpp"
#include "tensor/memory/mapped_slab.hpp"

namespace drover {

/// Some work, and when it is done.
struct WorkTicket {
  std::shared_ptr<DeviceWork> work;  ///< shared: with the Memory and all tensors it works on
  std::uint64_t ticket = 0;
};

/// A block that nobody here holds any more, but work that was submitted still uses.
struct RetiredBlock {
  std::shared_ptr<void> keeper;  ///< of other memory that the work uses
  Lease lease;
  std::shared_ptr<MappedSlab> slab;
  std::vector<WorkTicket> uses;
};

/// Safe for all threads.
class DeviceWorks {
 public:
  DeviceWorks(std::shared_ptr<Membership> membership, Ordering ordering)
      : membership_(std::move(membership)), ordering_(ordering) {}
  /// Waits until all work has ended. Leaves everything as it is in a forked child.
  ~DeviceWorks();
  DeviceWorks(const DeviceWorks&) = delete;
  DeviceWorks& operator=(const DeviceWorks&) = delete;

  /// The work on a device; begun when first asked for. Throws as `Backend::open`.
  [[nodiscard]] std::shared_ptr<DeviceWork> at(const Place& place) DROVER_EXCLUDES(mutex_);
  /// The timelines of the session; opened when first asked for.
  [[nodiscard]] std::shared_ptr<TimelineTable> timelines() DROVER_EXCLUDES(timelines_mutex_);

  /// What DeviceWork::bury_without_keeper does, for all: before something waits for a whole device.
  void bury_without_keeper() noexcept DROVER_EXCLUDES(mutex_);
  /// Keeps a block until its uses have ended.
  void retire(RetiredBlock block) DROVER_EXCLUDES(mutex_);
  /// Whether any are kept.
  [[nodiscard]] bool has_retired() const noexcept { return retired_count_.load(std::memory_order_relaxed) != 0; }
  /// Those whose uses have ended since, or end until the deadline.
  [[nodiscard]] std::vector<RetiredBlock> take_ended(Deadline patience) DROVER_EXCLUDES(mutex_);
  /// Calls `release` for those without a keeper in memory of other processes whose uses have ended. Returns whether
  /// there are more of these. Who needs memory waits meanwhile.
  [[nodiscard]] bool release_ended_of_others(const std::function<void(RetiredBlock&)>& release)
      DROVER_EXCLUDES(mutex_);

 private:
  struct Sorted {
    std::vector<RetiredBlock> ended;
    std::vector<RetiredBlock> going_on;
  };
  [[nodiscard]] static Sorted sort_out(std::vector<RetiredBlock> blocks, Deadline patience);
  void put_back(std::vector<RetiredBlock> blocks) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<std::shared_ptr<DeviceWork>> all() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<RetiredBlock> take_all() DROVER_EXCLUDES(mutex_);

  const std::shared_ptr<Membership> membership_;
  const Ordering ordering_;
  std::mutex taking_;
  Mutex timelines_mutex_;
  std::shared_ptr<TimelineTable> timelines_ DROVER_GUARDED_BY(timelines_mutex_);  // shared: with every work
  Mutex mutex_;
  std::vector<RetiredBlock> retired_ DROVER_GUARDED_BY(mutex_);
  std::map<Place, std::shared_ptr<DeviceWork>> works_ DROVER_GUARDED_BY(mutex_);
  std::atomic<std::size_t> retired_count_{0};
};

/// Whether a use has ended; work on a device that failed has.
[[nodiscard]] bool has_ended(const WorkTicket& use) noexcept;

}  // namespace drover
