// ipc/ledger/block_pool.hpp: allocates blocks of a memory that lies elsewhere to many processes, any of which may
// die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool_layout.hpp"

namespace drover::ipc {

/// The name of a block, valid in every process. A freed block is detected as stale, unless 2^26 later blocks have
/// started and ended at its chunk.
struct BlockRef {
  std::uint32_t chunk = 0;       ///< its first chunk
  std::uint32_t generation = 0;  ///< tells apart the blocks that start there

  friend bool operator==(const BlockRef&, const BlockRef&) = default;
};
static_assert(sizeof(BlockRef) == 8);

/// How much of a pool is in use, and by whom, at one moment.
struct PoolUsage {
  std::uint64_t total_bytes = 0;               ///< capacity
  std::uint64_t free_bytes = 0;                ///< not in blocks
  std::uint64_t largest_free_bytes = 0;        ///< largest block that could be allocated now
  std::uint64_t used_blocks = 0;               ///< number of blocks
  std::map<Owner, std::uint64_t> owner_bytes;  ///< in the blocks of each owner
};

/// An allocator whose state lies in shared memory: constant time, good fit, free neighbours coalesced at once.
/// Manages numbers only and never touches the memory it allocates, which may be a device's. A view: owns nothing,
/// cheap to copy. Safe for all threads and processes. A process may be killed at any instruction; the keeper then
/// calls `recover`. Operations throw `Errc::corrupt` if the state is impossible.
class BlockPool {
 public:
  /// The pool whose state lies at `state`. Throws `Errc::invalid_argument` for an impossible geometry.
  BlockPool(std::byte* state, const PoolGeometry& geometry);

  /// A block of at least `bytes` (at least one), aligned to a chunk, that belongs to `owner`; nullopt if no free
  /// extent is large enough now, or the lock was not free in time. Waits for other users of the pool, briefly unless
  /// one of them is stopped; throws what `membership.check()` throws if the session ends meanwhile.
  [[nodiscard]] std::optional<BlockRef> allocate(std::uint64_t bytes, Owner owner, const Membership& membership,
                                                 Deadline deadline = Deadline::never()) const;
  /// Frees a block. Throws `Errc::corrupt`, without any change, if it is stale or not `owner`'s. Waits for other
  /// users of the pool without a deadline.
  void free(BlockRef block, Owner owner, const Membership& membership) const;
  /// Makes `to` the owner, regardless of the current one. Does not wait. Throws `Errc::corrupt` for a stale block.
  void adopt(BlockRef block, Owner to) const;

  /// Its offset in the data, in bytes. Throws `Errc::corrupt` for a stale block.
  [[nodiscard]] std::uint64_t offset_of(BlockRef block) const;
  /// Its capacity in bytes. Throws `Errc::corrupt` for a stale block.
  [[nodiscard]] std::uint64_t capacity_of(BlockRef block) const;
  /// Its owner. Throws `Errc::corrupt` for a stale block.
  [[nodiscard]] Owner owner_of(BlockRef block) const;
  /// Whether a block of `bytes` does not fit even in an empty pool.
  [[nodiscard]] bool is_too_large(std::uint64_t bytes) const noexcept;

  /// For the keeper, after the kernel has reported the death of `dead`: repairs the state if it died in an operation,
  /// and frees its blocks, except those that others still reach according to `is_referenced`. Never waits for a
  /// participant: if another holds the lock, the next user of the pool frees the blocks. Wakes all waiters. May be
  /// repeated. Throws `Errc::corrupt` if the state is corrupt; its intact part stays usable.
  void recover(Owner dead, const std::function<bool(BlockRef)>& is_referenced) const;
  /// Wakes all waiters, so that they check the session.
  void wake_all() const noexcept;

  /// Free bytes; may lag behind briefly.
  [[nodiscard]] std::uint64_t free_bytes() const noexcept;
  /// Blocks in use; may lag behind briefly.
  [[nodiscard]] std::uint64_t used_blocks() const noexcept;
  /// Exact figures. Visits every block while other users wait.
  [[nodiscard]] PoolUsage usage(const Membership& membership) const;

 private:
  [[nodiscard]] std::uint64_t chunks_for(std::uint64_t bytes) const noexcept;
  [[nodiscard]] Extent used_extent(BlockRef block) const;
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t chunks) const noexcept { return chunks << chunk_shift_; }

  PoolView view_;
  unsigned chunk_shift_;
};

}  // namespace drover::ipc
