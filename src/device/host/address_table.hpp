// device/host/address_table.hpp: which address ranges exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "drover/base/mutex.hpp"

namespace drover::host {

/// What a range of addresses is.
struct RangeNote {
  enum class Kind {
    registered,  ///< host memory
    allocation,  ///< a device's, for this process alone until it names it to others
    slab,        ///< a device's, mapped
    opened,      ///< another process's allocation
  };
  Kind kind = Kind::registered;
  int device = -1;           ///< of device memory
  int file = -1;             ///< the memory file behind device memory; open while the range exists
  std::uint64_t number = 0;  ///< set by `add`: of this range alone, whatever comes to its addresses later
};

/// Disjoint address ranges of this process: the emulated devices' memory, or the host memory registered with
/// them. Safe from any thread.
class AddressTable {
 public:
  /// A range that is there.
  struct Range {
    std::uint64_t begin = 0;
    std::size_t bytes = 0;
    RangeNote note;
  };

  /// Adds a range; false, and nothing changes, if it overlaps one that is there.
  [[nodiscard]] bool add(std::uint64_t begin, std::size_t bytes, RangeNote note = {}) DROVER_EXCLUDES(mutex_);
  /// Removes the range that begins at `begin`.
  void remove(std::uint64_t begin) DROVER_EXCLUDES(mutex_);
  /// Whether all of [begin, begin + bytes) lies in one range.
  [[nodiscard]] bool contains(std::uint64_t begin, std::size_t bytes) const DROVER_EXCLUDES(mutex_);
  /// The range in which `address` lies.
  [[nodiscard]] std::optional<Range> find(std::uint64_t address) const DROVER_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::size_t bytes = 0;
    RangeNote note;
  };
  mutable Mutex mutex_;
  std::map<std::uint64_t, Entry> ranges_ DROVER_GUARDED_BY(mutex_);  // by begin
  std::uint64_t last_number_ DROVER_GUARDED_BY(mutex_) = 0;
};

}  // namespace drover::host
