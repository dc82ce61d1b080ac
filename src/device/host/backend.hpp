// device/host/backend.hpp: emulated GPUs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "device/host/address_table.hpp"
#include "device/host/work_queue.hpp"
#include "device/live.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/backend.hpp"

namespace drover::device::host {

class HostDevice;

/// Devices emulated with memory and threads of this machine. DROVER_HOST_DEVICES is their number, DROVER_HOST_MEMORY
/// the memory of each, DROVER_HOST_LATENCY the delay in microseconds before each piece of work, DROVER_HOST_GROUP the
/// name of the set: processes with the same group see the same devices.
class HostBackend final : public Backend {
 public:
  /// Reads the settings. Throws `Errc::invalid_argument` for an invalid one.
  HostBackend();
  ~HostBackend() override;

  [[nodiscard]] BackendKind kind() const noexcept override { return BackendKind::host; }
  [[nodiscard]] const std::vector<DeviceInfo>& devices() const override { return infos_; }
  [[nodiscard]] MemoryInfo memory_info(int device) const override;
  [[nodiscard]] Device& open(int device) override;
  [[nodiscard]] std::size_t slab_granularity(int device) const override;
  [[nodiscard]] std::unique_ptr<Slab> create_slab(int device, std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Slab> import_slab(int device, const Fd& fd, std::size_t bytes) override;
  [[nodiscard]] LiveResources live() const noexcept override { return counters_.read(); }

  // For its devices, streams and memory.
  [[nodiscard]] LiveCounters& counters() noexcept { return counters_; }
  [[nodiscard]] AddressTable& memory() noexcept { return memory_; }
  [[nodiscard]] AddressTable& registered() noexcept { return registered_; }
  /// Throws `Errc::invalid_argument` unless the range is live device memory.
  void check_range(DevicePtr begin, std::size_t bytes, const char* use) const;
  [[nodiscard]] const AddressTable& memory() const noexcept { return memory_; }
  [[nodiscard]] bool has_timelines() const noexcept { return has_timelines_; }
  /// Throws `Errc::unsupported` without timelines and `Errc::invalid_argument` unless the word lies in registered
  /// memory.
  void check_word(const TimelineWord& word) const;
  /// Starts a queue with its thread; `drain` waits for it until its work is complete.
  [[nodiscard]] std::shared_ptr<WorkQueue> start_queue(int device) DROVER_EXCLUDES(mutex_);
  /// The queue of a live stream of the device. Throws `Errc::invalid_argument` if `native` names none.
  [[nodiscard]] std::shared_ptr<WorkQueue> find_queue(int device, std::uintptr_t native) const
      DROVER_EXCLUDES(mutex_);
  /// Waits for all work submitted to the device, as a GPU does when memory is freed.
  void drain(int device) noexcept DROVER_EXCLUDES(mutex_);
  /// Whether a whole range of host memory is registered.
  [[nodiscard]] bool is_registered(const void* begin, std::size_t bytes) const;
  /// Reserves `bytes` of the device's capacity for this process. Throws `Errc::device_memory`.
  void reserve(int device, std::size_t bytes);
  /// Releases a reservation.
  void release(int device, std::size_t bytes) noexcept;

 private:
  [[nodiscard]] const DeviceInfo& info(int device) const;

  std::vector<DeviceInfo> infos_;
  std::chrono::microseconds latency_;
  bool has_timelines_;
  LiveCounters counters_;
  AddressTable memory_;
  AddressTable registered_;
  mutable Mutex mutex_;
  struct KnownQueue {
    int device;
    std::weak_ptr<WorkQueue> queue;
  };
  std::list<KnownQueue> queues_ DROVER_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<HostDevice>> opened_ DROVER_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> private_bytes_ DROVER_GUARDED_BY(mutex_);  // per device, of plain allocations
};

}  // namespace drover::device::host
