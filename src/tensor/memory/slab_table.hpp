// tensor/memory/slab_table.hpp: the slabs that this process has mapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "tensor/memory/foreign_memory.hpp"
#include "tensor/memory/mapped_slab.hpp"

namespace drover::tensor {

/// Memory of another library that was made a slab.
struct ImportedMemory {
  ForeignMemory memory;
  /// A lease beside those of tensors: while it is the only one, no other process can share the block. Shared: with
  /// threads that use it without the mutex.
  std::shared_ptr<const Lease> anchor;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<void>> keep_alive;  ///< by address and size
};

/// One mapped slab.
struct SlabEntry {
  std::shared_ptr<MappedSlab> slab;
  std::uint64_t claims = 0;                  ///< blocks of this process in it
  Clock::time_point idle_since;              ///< when it was first found idle; zero if it is not
  std::unique_ptr<ImportedMemory> imported;  ///< null unless this process imported it

  /// Whether no process uses this import any more, nor has it open. Requires: `imported`.
  [[nodiscard]] bool is_import_unused() const noexcept;
};

/// What MemoryState, IdleSlabs and Imports work on. The mutex is held briefly: slabs are made, mapped and destroyed
/// without it.
struct SlabTable {
  mutable Mutex mutex;
  std::map<std::uint64_t, SlabEntry> entries DROVER_GUARDED_BY(mutex);  ///< by generation
  std::map<Place, std::uint64_t> claimed DROVER_GUARDED_BY(mutex);      ///< bytes that this process claims
  std::atomic<std::size_t> import_count{0};                             ///< entries that are imports

  [[nodiscard]] std::uint64_t claimed_at(const Place& place) const DROVER_REQUIRES(mutex);
  /// Removes entries, for the caller to destroy once it has unlocked the mutex: to unmap takes long, and runs code of
  /// other libraries for imports.
  [[nodiscard]] std::vector<SlabEntry> take_if(const std::function<bool(const SlabEntry&)>& is_taken)
      DROVER_REQUIRES(mutex);
};

}  // namespace drover::tensor
