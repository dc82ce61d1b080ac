// device/host/address_table.hpp: which address ranges exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "drover/base/mutex.hpp"

namespace drover::host {

/// Disjoint address ranges of this process: the emulated devices' memory, or the host memory registered with
/// them. Safe from any thread.
class AddressTable {
 public:
  /// Adds a range; false, and nothing changes, if it overlaps one that is there.
  [[nodiscard]] bool add(std::uint64_t begin, std::size_t bytes) DROVER_EXCLUDES(mutex_);
  /// Removes the range that begins at `begin`.
  void remove(std::uint64_t begin) DROVER_EXCLUDES(mutex_);
  /// Whether all of [begin, begin + bytes) lies in one range.
  [[nodiscard]] bool contains(std::uint64_t begin, std::size_t bytes) const DROVER_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::uint64_t, std::size_t> ranges_ DROVER_GUARDED_BY(mutex_);  // begin to length
};

}  // namespace drover::host
