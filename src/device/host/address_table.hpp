// device/host/address_table.hpp: the live address ranges of the emulated devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "drover/base/mutex.hpp"

namespace drover::device::host {

/// Properties of a range.
struct RangeNote {
  enum class Kind {
    registered,  ///< host memory
    allocation,  ///< device memory allocated by this process
    slab,        ///< a mapped slab
    opened,      ///< an allocation of another process
  };
  Kind kind = Kind::registered;
  int device = -1;           ///< index, for device memory
  int file = -1;             ///< the memory file behind device memory; open while the range exists
  std::uint64_t number = 0;  ///< set by `add`; unique, even if the addresses are reused
};

/// Disjoint address ranges of this process: memory of the emulated devices, or host memory registered with them.
/// Thread-safe.
class AddressTable {
 public:
  /// A live range.
  struct Range {
    std::uint64_t begin = 0;
    std::size_t bytes = 0;
    RangeNote note;
  };

  /// Adds a range; returns false and changes nothing if it overlaps a live one.
  [[nodiscard]] bool add(std::uint64_t begin, std::size_t bytes, RangeNote note = {}) DROVER_EXCLUDES(mutex_);
  /// Removes the range that begins at `begin`.
  void remove(std::uint64_t begin) DROVER_EXCLUDES(mutex_);
  /// Whether all of [begin, begin + bytes) lies in one range.
  [[nodiscard]] bool contains(std::uint64_t begin, std::size_t bytes) const DROVER_EXCLUDES(mutex_);
  /// The range that contains `address`; nullopt if there is none.
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

}  // namespace drover::device::host
