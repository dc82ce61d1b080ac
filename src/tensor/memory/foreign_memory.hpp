// tensor/memory/foreign_memory.hpp: memory of other libraries, and files of slabs shared by a handle.
#pragma once

#include <cstdint>
#include <memory>

#include "drover/base/fd.hpp"
#include "drover/device/backend.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/memory/slab_marks.hpp"

namespace drover::tensor {

/// An allocation of another library in this process, and how it is shared: on a device, as `Device::describe` reports
/// it; in host memory a file, named by its device and inode. Equal for the same memory, but not for successive
/// allocations at one address.
struct ForeignMemory {
  Place place;
  DevicePtr base;
  std::uint64_t size = 0;
  std::uint64_t buffer_id = 0;
  SlabForm form = SlabForm::memory;

  friend bool operator==(const ForeignMemory&, const ForeignMemory&) = default;
};

/// The first `bytes` of a file in memory. Throws `Errc::invalid_argument` for another file, or a shorter one.
[[nodiscard]] ForeignMemory foreign_file(const Fd& file, std::uint64_t bytes);

/// Bytes of such an allocation that stay allocated while `keep_alive` is held.
struct KeptBytes {
  DevicePtr begin;
  std::uint64_t bytes = 0;
  std::shared_ptr<void> keep_alive;  ///< shared: with whatever else needs the memory
};

/// The file of a slab that is shared by a handle: the handle, its process, and what it names.
[[nodiscard]] Fd make_handle_file(const Device& device, const ForeignMemory& memory);

/// The memory that such a file names, in this process.
struct HandleMemory {
  std::unique_ptr<DeviceMemory> opened;  ///< of another process
  DevicePtr address;                     ///< of this process's own memory
};

/// Opens the memory that such a file names, for a slab of `bytes`. Throws `Errc::corrupt` for another file,
/// `Errc::peer_lost` if the memory, or the process that allocated it, is gone.
[[nodiscard]] HandleMemory open_handle_file(const Place& place, const Fd& file, std::uint64_t bytes);

}  // namespace drover::tensor
