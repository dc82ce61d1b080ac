// tensor/memory/mapped_slab.hpp: a slab mapped into this process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "drover/base/mapping.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/backend.hpp"
#include "drover/tensor/memory.hpp"
#include "ipc/ledger/open_ledger.hpp"
#include "tensor/memory/slab_marks.hpp"

namespace drover::tensor {

struct ForeignMemory;

/// A slab's ledger and memory, mapped once per process for all blocks in it.
class MappedSlab {
 public:
  /// Makes a slab of at least `bytes`, which the keeper holds from now on, for one large block at a time or for many.
  /// Throws `Errc::device_memory` or `Errc::out_of_memory`.
  [[nodiscard]] static std::shared_ptr<MappedSlab> make(const std::shared_ptr<Membership>& membership,
                                                        const Place& place, std::uint64_t bytes, bool is_for_one);
  /// Makes a slab of a whole allocation of another library: used at its own address if it is shared by a handle,
  /// otherwise mapped a second time. Throws as `Device::ipc_handle` and `Device::retain_slab`.
  [[nodiscard]] static std::shared_ptr<MappedSlab> make(const std::shared_ptr<Membership>& membership,
                                                        const ForeignMemory& memory);
  /// Makes a slab of the first `bytes` of a file in which another library has shared memory. Maps it a second time.
  [[nodiscard]] static std::shared_ptr<MappedSlab> make(const std::shared_ptr<Membership>& membership, const Fd& file,
                                                        std::uint64_t bytes);
  /// Maps a slab of another process. Throws `Errc::not_found` if its device is not visible here, `Errc::corrupt` if
  /// file and ledger disagree, `Errc::peer_lost` for a handle of a process that is gone.
  [[nodiscard]] static std::shared_ptr<MappedSlab> open(std::shared_ptr<ipc::OpenLedger> book);

  [[nodiscard]] const Place& place() const noexcept { return place_; }
  [[nodiscard]] ipc::OpenLedger& book() const noexcept { return *book_; }
  /// Identifies the slab in the session.
  [[nodiscard]] std::uint64_t generation() const noexcept { return book_->object().handle().generation; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return ipc::slab_bytes(book_->object().spec()); }
  /// Whether this process made its memory and allocates in it.
  [[nodiscard]] bool is_own() const noexcept { return is_own_; }
  /// Whether it was made for one large block at a time. Unknown, and so false, for slabs of other processes.
  [[nodiscard]] bool is_for_one() const noexcept { return is_for_one_; }
  /// Copies into host memory. Uses pwrite for the first copy into a new slab: that takes half the time of page
  /// faults. Throws `Errc::out_of_memory` if there are no more pages.
  void write(std::uint64_t offset, std::span<const std::byte> from) const;
  /// Its address; nullptr for device memory.
  [[nodiscard]] std::byte* host_data() const noexcept { return host_.data(); }
  /// Its address on its device.
  [[nodiscard]] DevicePtr device_data() const noexcept { return device_ == nullptr ? address_ : device_->ptr(); }
  /// Whether a library of one process allocated it, and other processes open it by a handle, which they must close
  /// before that library can free it.
  [[nodiscard]] bool is_by_handle() const noexcept { return form_ == SlabForm::handle; }
  /// Whether it contains no block; may change at any time unless only this process allocates in it.
  [[nodiscard]] bool is_empty() const noexcept { return book_->ledger().used_blocks() == 0; }
  /// Registers host memory with a device, once, so that copies run at full speed and do not wait. Returns whether it
  /// is registered; logs a failure.
  bool register_with(Device& device) DROVER_EXCLUDES(mutex_);
  /// Whether no other process has it open.
  [[nodiscard]] bool is_alone() const noexcept;

 private:
  Place place_;
  std::shared_ptr<ipc::OpenLedger> book_;  // shared: with the leases
  bool is_own_ = false;
  bool is_for_one_ = false;
  mutable std::atomic<bool> is_new_{false};  // for one large block, and not written yet
  SlabForm form_ = SlabForm::memory;
  DevicePtr address_;  // of memory that is used at its own address
  Mapping host_;
  std::unique_ptr<DeviceMemory> device_;
  Mutex mutex_;
  std::map<BackendKind, std::shared_ptr<HostRegistration>> registrations_
      DROVER_GUARDED_BY(mutex_);  // destroyed before host_
};

}  // namespace drover::tensor
