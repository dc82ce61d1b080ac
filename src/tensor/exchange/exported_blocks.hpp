// tensor/exchange/exported_blocks.hpp: blocks that other libraries of this process use, by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "drover/base/mutex.hpp"
#include "drover/device/memory.hpp"
#include "drover/tensor/memory.hpp"

namespace drover::tensor {

class TensorStorage;

/// The address of a block in this process: on its device, or in host memory.
[[nodiscard]] DevicePtr address_of(const Block& block);

/// Maps addresses to the storage they belong to, while another library has them: an array at such an address is
/// already a tensor, and is sent as one. One per process. Safe for all threads.
class ExportedBlocks {
 public:
  [[nodiscard]] static ExportedBlocks& instance();

  /// Registers a block while the entry lives. Requires: destroyed before the storage, in the same process.
  class Entry {
   public:
    /// `is_divided` tells whether the library makes arrays in the block, and frees them, by itself.
    explicit Entry(const std::shared_ptr<TensorStorage>& storage, bool is_divided = false);
    ~Entry();
    /// Leaves the block registered: in a forked child the registry may stay locked.
    void leak() noexcept { number_ = 0; }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    std::uint64_t begin_ = 0;
    std::uint64_t number_ = 0;
  };

  /// The block that a search found.
  struct Found {
    std::shared_ptr<TensorStorage> storage;  ///< null if there is none
    bool is_divided = false;                 ///< as its entry was made
  };
  /// The block that contains all these bytes. If several entries do, the one for a divided block, since only it can
  /// keep the array allocated; otherwise the latest.
  [[nodiscard]] Found find(const Place& place, DevicePtr begin, std::uint64_t bytes) DROVER_EXCLUDES(mutex_);

 private:
  struct Region {
    Place place;
    std::uint64_t bytes = 0;
    bool is_divided = false;
    std::weak_ptr<TensorStorage> storage;  // that of the latest entry
  };

  Mutex mutex_;
  // By address, then by order of registration.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Region> regions_ DROVER_GUARDED_BY(mutex_);
  std::uint64_t next_ DROVER_GUARDED_BY(mutex_) = 1;
};

}  // namespace drover::tensor
