// ipc/ledger/block_pool.hpp: gives out blocks of a memory that lies elsewhere, to many processes, any of which may
// die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool_layout.hpp"

namespace drover {

/// The name of a block, valid in every process. One that was freed is recognised as stale, unless 2^26 further blocks
/// have begun and ended at its chunk.
struct BlockRef {
  std::uint32_t chunk = 0;       ///< where it begins
  std::uint32_t generation = 0;  ///< which of the blocks that begin there

  friend bool operator==(const BlockRef&, const BlockRef&) = default;
};
static_assert(sizeof(BlockRef) == 8);

/// Who uses how much of a pool, at one moment.
struct PoolUsage {
  std::uint64_t total_bytes = 0;               ///< that can be given out
  std::uint64_t free_bytes = 0;                ///< that are not
  std::uint64_t largest_free_bytes = 0;        ///< what one block can have now
  std::uint64_t used_blocks = 0;               ///< how many there are
  std::map<Owner, std::uint64_t> owner_bytes;  ///< in blocks of each owner
};

/// An allocator whose state lies in shared memory: constant time, good fit, free neighbours united at once. Manages
/// numbers only and never touches the memory it gives out, which may be a device's. A view: owns nothing, cheap to
/// copy. Safe for all threads and processes. A process may be killed at any instruction; the keeper then calls
/// `recover`. Where the state is impossible, whoever spoiled it, operations throw `Errc::corrupt`.
class BlockPool {
 public:
  /// The pool whose state lies at `state`. Throws `Errc::invalid_argument` for a geometry that cannot be.
  BlockPool(std::byte* state, const PoolGeometry& geometry);

  /// A block of at least `bytes` (at least one), aligned to a chunk, that belongs to `owner`; nothing if no free
  /// piece is that large now, or the pool's lock was not free in time. Waits for other users of the pool, briefly
  /// unless one of them stands still; throws what `membership.check()` throws if the session ends meanwhile.
  [[nodiscard]] std::optional<BlockRef> allocate(std::uint64_t bytes, Owner owner, const Membership& membership,
                                                 Deadline deadline = Deadline::never()) const;
  /// Gives a block back. Throws `Errc::corrupt`, and nothing has changed, if it is stale or not `owner`'s. Waits for
  /// other users of the pool for as long as it takes.
  void free(BlockRef block, Owner owner, const Membership& membership) const;
  /// Makes `to` the owner, whoever was. Does not wait. Throws `Errc::corrupt` for a stale block.
  void adopt(BlockRef block, Owner to) const;

  /// Where the block begins, in bytes from the start of the data. Throws `Errc::corrupt` for a stale block.
  [[nodiscard]] std::uint64_t offset_of(BlockRef block) const;
  /// What it can hold. Throws `Errc::corrupt` for a stale block.
  [[nodiscard]] std::uint64_t capacity_of(BlockRef block) const;
  /// To whom it belongs. Throws `Errc::corrupt` for a stale block.
  [[nodiscard]] Owner owner_of(BlockRef block) const;
  /// Whether a block of `bytes` can never be, even in an empty pool.
  [[nodiscard]] bool is_too_large(std::uint64_t bytes) const noexcept;

  /// For the keeper, after the kernel has reported the death of `dead`: makes the state whole if it died in the
  /// middle of an operation, and frees its blocks, except those of which `is_referenced` says that others still reach
  /// them. Never waits for a participant: what another holds it leaves to the next user of the pool. Wakes all who
  /// wait for the pool. May be repeated. Throws `Errc::corrupt` if the state was spoiled; what can be used then still
  /// can.
  void recover(Owner dead, const std::function<bool(BlockRef)>& is_referenced) const;
  /// Wakes all who wait for the pool, to look at the session.
  void wake_all() const noexcept;

  /// Free bytes; may lag behind for a moment.
  [[nodiscard]] std::uint64_t free_bytes() const noexcept;
  /// Blocks in use; may lag behind for a moment.
  [[nodiscard]] std::uint64_t used_blocks() const noexcept;
  /// All of it, exactly; looks at every block, and the others wait for that long.
  [[nodiscard]] PoolUsage usage(const Membership& membership) const;

 private:
  [[nodiscard]] std::uint64_t chunks_for(std::uint64_t bytes) const noexcept;
  [[nodiscard]] Extent used_extent(BlockRef block) const;
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t chunks) const noexcept { return chunks << chunk_shift_; }

  PoolView view_;
  unsigned chunk_shift_;
};

}  // namespace drover
