// ipc/ledger/slab_ledger.hpp: the blocks of a slab and the leases on them, for many processes, any of which may die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool.hpp"
#include "ipc/ledger/ledger_layout.hpp"

namespace drover::ipc {

/// The name of a lease, valid in every process. An ended lease is detected as stale, unless 2^26 later leases have
/// started and ended in its cell.
struct LeaseRef {
  std::uint32_t index = 0;       ///< its cell
  std::uint32_t generation = 0;  ///< tells apart the leases of that cell

  friend bool operator==(const LeaseRef&, const LeaseRef&) = default;
  friend auto operator<=>(const LeaseRef&, const LeaseRef&) = default;
};
static_assert(sizeof(LeaseRef) == 8);

/// The place of a block in its slab.
struct BlockRange {
  std::uint64_t offset = 0;  ///< bytes from the start of the slab
  std::uint64_t bytes = 0;   ///< capacity

  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

/// How much of a slab is in use, and by whom, at one moment.
struct LedgerUsage {
  /// The part of one holder.
  struct Share {
    std::uint64_t leases = 0;  ///< number of leases
    std::uint64_t bytes = 0;   ///< in their blocks; a block with two leases counts twice
  };
  std::uint64_t total_bytes = 0;         ///< capacity
  std::uint64_t free_bytes = 0;          ///< not in blocks
  std::uint64_t largest_free_bytes = 0;  ///< largest block that could be allocated now
  std::uint64_t blocks = 0;              ///< number of blocks
  std::map<Owner, Share> holders;        ///< participants, `kInTransit`, `kKept`
};

/// Allocates blocks of a slab, and leases on them: a block lives as long as there is a lease on it. Manages numbers
/// only and never touches the slab's memory, which may be a device's. A view: owns nothing, cheap to copy. Safe for
/// all threads and processes. A process may be killed at any instruction; the keeper then calls `recover`. Operations
/// throw `Errc::corrupt` if the state is impossible, and `Errc::not_found` for a lease that has ended.
class SlabLedger {
 public:
  /// The ledger whose state lies at `state`. Throws `Errc::invalid_argument` for an impossible geometry.
  SlabLedger(std::byte* state, const LedgerGeometry& geometry);

  /// A lease of `holder` on a new block of at least `bytes` (at least one), aligned to a chunk; nullopt if no free
  /// extent is large enough now, or the lock was not free in time. Waits for other users of the slab, briefly unless
  /// one of them is stopped; throws what `membership.check()` throws if the session ends meanwhile, and
  /// `Errc::limit_reached` if there is no cell for another lease.
  [[nodiscard]] std::optional<LeaseRef> allocate(std::uint64_t bytes, Owner holder, const Membership& membership,
                                                 Deadline deadline = Deadline::never()) const;
  /// Another lease on the block of `lease`, for `holder`, and for the same part of it unless another is given. Waits
  /// without a deadline and throws as `allocate`.
  [[nodiscard]] LeaseRef share(LeaseRef lease, Owner holder, const Membership& membership,
                               std::optional<std::uint32_t> part = std::nullopt) const;
  /// Ends a lease of `holder`, and frees the block with its last lease. Throws `Errc::not_found`, without any change,
  /// if it has ended or is another's. Waits for other users of the slab without a deadline.
  void release(LeaseRef lease, Owner holder, const Membership& membership) const;
  /// Whether its block has no other lease, after those of the dead were ended. False if the lock is not free now.
  /// Throws as `allocate`.
  [[nodiscard]] bool is_only(LeaseRef lease, const Membership& membership) const;
  /// The parts of its block for which there are leases, in ascending order, after those of the dead were ended; the
  /// whole is none. nullopt if the lock is not free now. Visits every lease of the slab. Throws as `allocate`.
  [[nodiscard]] std::optional<std::vector<std::uint32_t>> parts_of(LeaseRef lease,
                                                                   const Membership& membership) const;
  /// Moves a lease from one holder to another, without waiting. False, without any change, if `from` does not have
  /// it.
  [[nodiscard]] bool hand_over(LeaseRef lease, Owner from, Owner to) const;
  /// Makes `to` the holder, regardless of the current one, without waiting.
  void adopt(LeaseRef lease, Owner to) const;

  /// The place of a lease's block.
  [[nodiscard]] BlockRange range_of(LeaseRef lease) const;
  /// The holder of a lease.
  [[nodiscard]] Owner holder_of(LeaseRef lease) const;
  /// The number of leases on its block; may change at any time.
  [[nodiscard]] std::uint32_t leases_beside(LeaseRef lease) const;
  /// Whether a block of `bytes` does not fit even in an empty slab.
  [[nodiscard]] bool is_too_large(std::uint64_t bytes) const noexcept { return pool_.is_too_large(bytes); }
  /// Whether `allocate` of `bytes` will probably succeed. Takes no lock, so it may be wrong while others work.
  [[nodiscard]] bool seems_to_have_room(std::uint64_t bytes) const noexcept;
  /// Free bytes; may lag behind briefly.
  [[nodiscard]] std::uint64_t free_bytes() const noexcept { return pool_.free_bytes(); }
  /// Blocks in use; may lag behind briefly.
  [[nodiscard]] std::uint64_t used_blocks() const noexcept { return pool_.used_blocks(); }
  /// Whether there is a lease that has not ended; may change at any time. Visits every lease of the slab.
  [[nodiscard]] bool has_leases() const noexcept;
  /// Whether `participant` holds the lease, or is about to send it.
  [[nodiscard]] bool is_of(LeaseRef lease, Owner participant) const noexcept;
  /// Exact figures; nullopt if the lock was not free in time. Visits every block and lease while other users wait.
  [[nodiscard]] std::optional<LedgerUsage> usage(const Membership& membership,
                                                 Deadline deadline = Deadline::never()) const;

  /// For the keeper, after the kernel has reported the death of `dead`: repairs the state if it died in an operation,
  /// and ends its leases, except those to which a message refers according to `is_referenced`: these become in
  /// transit. Never waits for a participant: if another holds the lock, the next user ends the leases. May be
  /// repeated. Throws `Errc::corrupt` if the state is corrupt; its intact part stays usable.
  void recover(Owner dead, const std::function<bool(LeaseRef)>& is_referenced) const;
  /// For the keeper: ends a lease that is in transit or kept, unless `holder` does not have it. The next user frees
  /// its block.
  void drop(LeaseRef lease, Owner holder) const;
  /// Wakes all waiters for the lock, so that they check the session.
  void wake_all() const noexcept { pool_.wake_all(); }

 private:
  [[nodiscard]] LeaseState used_state(LeaseRef lease) const;
  [[nodiscard]] std::uint32_t chunks_for(std::uint64_t bytes) const noexcept;

  LedgerView view_;
  BlockPool pool_;
  unsigned chunk_shift_;
};

}  // namespace drover::ipc
