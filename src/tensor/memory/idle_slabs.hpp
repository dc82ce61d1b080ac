// tensor/memory/idle_slabs.hpp: which slabs are kept when they are empty, for how long, and how many.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/memory/slab_table.hpp"

namespace drover::tensor {

/// The policy for slabs in which this process has no blocks. Decides, and leaves all else to MemoryState, whose table
/// and mutex it is passed. Safe for all threads.
class IdleSlabs {
 public:
  /// `options` must outlive this. Throws `Errc::invalid_argument` for a wrong `DROVER_IDLE_MEMORY`.
  explicit IdleSlabs(const MemoryOptions& options);

  /// Whether empty slabs are kept for the next blocks.
  [[nodiscard]] bool keeps() const noexcept { return idle_bytes_ > 0; }
  /// The size of a slab that is made for one block of `bytes`.
  [[nodiscard]] std::uint64_t size_for_one(const Place& place, std::uint64_t bytes) const noexcept;
  /// Whether a slab may hold a block of `bytes` at `place`.
  [[nodiscard]] bool is_for(const MappedSlab& slab, const Place& place, std::uint64_t bytes) const noexcept;

  /// Whether it is better to give a slab back than to keep it.
  [[nodiscard]] bool is_idle(const SlabTable& table, const SlabEntry& entry) const DROVER_REQUIRES(table.mutex);
  /// Whether a slab without claims may become idle, and is then kept for a while.
  [[nodiscard]] bool may_become_idle(const SlabTable& table, const SlabEntry& entry) const
      DROVER_REQUIRES(table.mutex);
  /// Keeps an idle slab from now on; false if it does not fit, or all other processes have closed it.
  [[nodiscard]] bool keep(const SlabTable& table, SlabEntry& entry) const DROVER_REQUIRES(table.mutex);
  /// Removes those idle for longest, until the rest at `place` fits when `more` bytes are claimed.
  [[nodiscard]] std::vector<SlabEntry> take_surplus(SlabTable& table, const Place& place,
                                                    std::uint64_t more = 0) const DROVER_REQUIRES(table.mutex);

  struct Expired {
    std::vector<SlabEntry> slabs;
    bool has_more = false;  ///< whether others may expire later
  };
  /// Removes slabs whose time is over, or all idle ones of the host if its memory is short. Never removes imports.
  [[nodiscard]] Expired take_expired(SlabTable& table, bool is_host_short) const DROVER_REQUIRES(table.mutex);

 private:
  [[nodiscard]] static bool has_other_common(const SlabTable& table, const MappedSlab& slab)
      DROVER_REQUIRES(table.mutex);
  [[nodiscard]] std::uint64_t room(const SlabTable& table, const Place& place, std::uint64_t more) const
      DROVER_REQUIRES(table.mutex);
  [[nodiscard]] std::chrono::nanoseconds time_of(const MappedSlab& slab) const noexcept;

  const MemoryOptions& options_;
  const std::uint64_t idle_bytes_;
};

}  // namespace drover::tensor
