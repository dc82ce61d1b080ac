// ipc/ledger/ledger_layout.hpp: the leases on the blocks of a slab as they lie in shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool_layout.hpp"

namespace drover::ipc {

/// The sizes of a ledger; from the spec, never from shared memory.
struct LedgerGeometry {
  PoolGeometry pool;         ///< of the slab's memory
  std::uint32_t leases = 0;  ///< most at the same time
};

/// Size of the state: a multiple of 64. Throws `Errc::invalid_argument`, with the limits, for an impossible geometry.
[[nodiscard]] std::size_t ledger_state_bytes(const LedgerGeometry& geometry);
/// Makes the state in zeroed memory. Touches few of its pages.
void format_ledger(std::byte* state, const LedgerGeometry& geometry);

inline constexpr Owner kSlabItself =
    kPoolOwnerMask;  ///< owner of all blocks of a slab, whose lifetime their leases decide
inline constexpr Owner kInTransit = kSlabItself - 1;  ///< holder of a lease in a message
inline constexpr std::uint32_t kWhole = 0;            ///< the part of a lease that stands for its whole block
inline constexpr Owner kKept = kInTransit - 1;        ///< holder of a lease that the session keeps under a name
static_assert(kKept > 3 * (kMaxParticipants + 1));

/// The holder of a lease that `sender` is about to give to a message. Differs from `sender`, to tell the sending
/// thread from another thread of the same process that receives the lease.
[[nodiscard]] constexpr Owner sending_by(Owner sender) noexcept {
  return static_cast<Owner>(sender + kMaxParticipants + 1);
}
/// The holder of a lease that `owner` offers to the keeper. Differs from one that is being sent, so that a late
/// keeper does not take a lease whose offer was withdrawn and that is in a message now.
[[nodiscard]] constexpr Owner offered_by(Owner owner) noexcept {
  return static_cast<Owner>(owner + 2 * (kMaxParticipants + 1));
}
/// The participant whose death ends a lease of this holder; the holder itself if it is no participant.
[[nodiscard]] constexpr Owner participant_of(Owner holder) noexcept {
  constexpr Owner kStep = kMaxParticipants + 1;
  const bool is_between = holder >= kStep && holder < 3 * kStep && holder % kStep != kNobody;
  return is_between ? static_cast<Owner>(holder % kStep) : holder;
}
static_assert(participant_of(offered_by(1)) == 1 && participant_of(offered_by(kMaxParticipants)) == kMaxParticipants);
static_assert(participant_of(sending_by(1)) == 1 && participant_of(sending_by(kMaxParticipants)) == kMaxParticipants);
static_assert(participant_of(kMaxParticipants) == kMaxParticipants && participant_of(kInTransit) == kInTransit);
static_assert(participant_of(kKept) == kKept);

/// A lease as its cell's 64-bit word describes it.
struct LeaseState {
  bool is_used = false;          ///< whether the cell holds a lease
  std::uint32_t chunk = 0;       ///< first chunk of the block it is on
  Owner holder = kNobody;        ///< `kNobody` for one that waits to be ended (an orphan)
  std::uint32_t generation = 0;  ///< number of leases that have ended in this cell, modulo 2^26

  friend bool operator==(const LeaseState&, const LeaseState&) = default;
};

[[nodiscard]] constexpr std::uint64_t encode(const LeaseState& lease) noexcept {
  return encode(
      Extent{.is_used = lease.is_used, .length = lease.chunk, .owner = lease.holder, .generation = lease.generation});
}

[[nodiscard]] constexpr LeaseState decode_lease(std::uint64_t word) noexcept {
  const Extent extent = decode_extent(word);
  return {.is_used = extent.is_used, .chunk = extent.length, .holder = extent.owner, .generation = extent.generation};
}

/// One for each lease.
///
/// 1. A used word names a block that is in use: a block is committed before its first lease, and freed after its last
///    one has ended. So the holder of a lease may use the memory, at every instruction of every process.
/// 2. A lease starts and ends under the pool's lock, or becomes an orphan without it. Its holder changes by
///    compare-and-swap, without the lock.
/// 3. The generation increases in the step in which a lease ends or becomes an orphan. A reference is valid while its
///    cell's word is used and has its generation; so a lease is released exactly once, by its holder or by recovery.
/// 4. Everything but the words is derived from them, guarded by the pool's lock, and recomputed when a holder of the
///    lock has died. A block without leases, which only such a death can leave, is freed then.
struct alignas(16) LeaseCell {
  std::atomic<std::uint64_t> word;  ///< a LeaseState; the truth
  std::atomic<Link> next;           ///< of a free cell or an orphan: the next in its stack
  std::atomic<std::uint32_t> part;  ///< the part of its block that a lease stands for; 0 for all of it
};
static_assert(sizeof(LeaseCell) == 16);

/// Follows the pool's state; the cells follow it.
struct alignas(kCacheLine) LedgerHeader {
  std::atomic<std::uint32_t> fresh;  ///< first cell that was never used; increased before the use
  std::atomic<std::uint32_t> used;   ///< leases, orphans included
  std::atomic<Link> free;            ///< stack of free cells below `fresh`
  std::atomic<Link> orphans;         ///< stack: the keeper pushes without the lock, the lock's holder takes all
};

/// A ledger's state in this process's address space.
struct LedgerView {
  PoolView pool;
  LedgerHeader& header;
  LeaseCell* cells;
  std::uint32_t capacity;  ///< number of cells

  LedgerView(std::byte* state, const LedgerGeometry& geometry)
      : pool(state, chunk_count(geometry.pool)),
        header(*reinterpret_cast<LedgerHeader*>(state + pool_state_bytes(geometry.pool))),
        cells(reinterpret_cast<LeaseCell*>(state + pool_state_bytes(geometry.pool) + sizeof(LedgerHeader))),
        capacity(geometry.leases) {}
};

}  // namespace drover::ipc
