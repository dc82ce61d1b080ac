// tensor/memory/mapped_slab.hpp: a slab that has an address in this process.
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
#include "drover/tensor/place.hpp"
#include "ipc/ledger/slab_book.hpp"
#include "tensor/memory/slab_marks.hpp"

namespace drover {

struct ForeignMemory;

/// A slab's ledger and its memory, mapped: once per process, for all blocks in it.
class MappedSlab {
 public:
  /// Makes a slab of at least `bytes`, which the keeper holds from now on: for one large block at a time, or for
  /// many. Throws `Errc::device_memory` or `Errc::out_of_memory`.
  [[nodiscard]] static std::shared_ptr<MappedSlab> make(const std::shared_ptr<Membership>& membership,
                                                        const Place& place, std::uint64_t bytes, bool is_for_one);
  /// Makes one of memory that another library allocated, as large as that is. By a handle, it is used where it lies;
  /// else it gets a second address here. Throws as `Device::ipc_handle` and `Device::retain_slab`.
  [[nodiscard]] static std::shared_ptr<MappedSlab> make(const std::shared_ptr<Membership>& membership,
                                                        const ForeignMemory& memory);
  /// Maps one that another process made. Throws `Errc::not_found` if its device is not visible here, `Errc::corrupt`
  /// if the file is not what the ledger says, `Errc::peer_lost` for a handle whose process is gone.
  [[nodiscard]] static std::shared_ptr<MappedSlab> open(std::shared_ptr<SlabBook> book);

  [[nodiscard]] const Place& place() const noexcept { return place_; }
  [[nodiscard]] SlabBook& book() const noexcept { return *book_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return slab_bytes(book_->object().spec()); }
  /// Whether this process made its memory, and allocates in it.
  [[nodiscard]] bool is_own() const noexcept { return is_own_; }
  /// Whether this process has opened it, and neither made nor imported its memory.
  [[nodiscard]] bool is_opened() const noexcept { return is_opened_; }
  /// Whether it was made for one large block at a time. Of others it is not known.
  [[nodiscard]] bool is_for_one() const noexcept { return is_for_one_; }
  /// Copies into host memory: by the system where nobody has touched the pages yet, which takes half the time of
  /// having them made one by one. Throws `Errc::out_of_memory` if it has no more of them.
  void write(std::uint64_t offset, std::span<const std::byte> from) const;
  /// Where it begins; nullptr if it is a device's.
  [[nodiscard]] std::byte* host_data() const noexcept { return host_.data(); }
  /// Where it begins on its device.
  [[nodiscard]] DevicePtr device_data() const noexcept { return device_ == nullptr ? address_ : device_->ptr(); }
  /// Whether it is memory that one process allocated for itself, and the others opened by a handle. They must close
  /// it before that one frees it.
  [[nodiscard]] bool is_by_handle() const noexcept { return form_ == SlabForm::handle; }
  /// Throws `Errc::peer_lost` if it was opened by a handle and the process that allocated it is gone.
  void check_maker() const;
  /// Whether there is no block in it; may change at any time unless this process alone allocates there.
  [[nodiscard]] bool is_empty() const noexcept { return book_->ledger().used_blocks() == 0; }
  /// Makes host memory known to a device, once, so that copies run at full speed and do not wait. Returns whether it
  /// is; what the system refuses is logged.
  bool make_known_to(Device& device) DROVER_EXCLUDES(mutex_);
  /// Whether nobody else has it open.
  [[nodiscard]] bool is_alone() const noexcept;

 private:
  Place place_;
  std::shared_ptr<SlabBook> book_;  // shared: with the leases
  bool is_own_ = false;
  bool is_opened_ = false;
  bool is_for_one_ = false;
  mutable std::atomic<bool> is_new_{false};  // one for a large block, into which nothing was written yet
  SlabForm form_ = SlabForm::memory;
  DevicePtr address_;       // of memory that is used where it lies
  std::int64_t maker_ = 0;  // the process that allocated what was opened by a handle
  Mapping host_;
  std::unique_ptr<DeviceMemory> device_;
  Mutex mutex_;
  std::map<BackendKind, std::shared_ptr<HostRegistration>> known_ DROVER_GUARDED_BY(mutex_);  // before host_ goes
};

}  // namespace drover
