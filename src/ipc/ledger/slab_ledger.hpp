// ipc/ledger/slab_ledger.hpp: the blocks of a slab and the leases on them, for many processes, any of which may die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/block_pool.hpp"
#include "ipc/ledger/ledger_layout.hpp"

namespace drover {

/// The name of a lease, valid in every process. One that has ended is recognised as stale, unless 2^26 further leases
/// have begun and ended in its cell.
struct LeaseRef {
  std::uint32_t index = 0;       ///< its cell
  std::uint32_t generation = 0;  ///< which of the leases of that cell

  friend bool operator==(const LeaseRef&, const LeaseRef&) = default;
  friend auto operator<=>(const LeaseRef&, const LeaseRef&) = default;
};
static_assert(sizeof(LeaseRef) == 8);

/// Where a block lies in its slab.
struct BlockRange {
  std::uint64_t offset = 0;  ///< bytes from the start of the slab
  std::uint64_t bytes = 0;   ///< what it can hold

  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

/// Who holds how much of a slab, at one moment.
struct LedgerUsage {
  /// What one holder has.
  struct Share {
    std::uint64_t leases = 0;  ///< how many
    std::uint64_t bytes = 0;   ///< of their blocks; a block with two leases counts twice
  };
  std::uint64_t total_bytes = 0;         ///< that can be given out
  std::uint64_t free_bytes = 0;          ///< that are not
  std::uint64_t largest_free_bytes = 0;  ///< what one block can have now
  std::uint64_t blocks = 0;              ///< how many there are
  std::map<Owner, Share> holders;        ///< participants, `kInTransit`, `kKept`
};

/// Gives out blocks of a slab, and leases on them: a block lives as long as there is a lease on it. Manages numbers
/// only and never touches the slab's memory, which may be a device's. A view: owns nothing, cheap to copy. Safe for
/// all threads and processes. A process may be killed at any instruction; the keeper then calls `recover`. Where the
/// state is impossible, whoever spoiled it, operations throw `Errc::corrupt`. A lease that has ended is
/// `Errc::not_found`.
class SlabLedger {
 public:
  /// The ledger whose state lies at `state`. Throws `Errc::invalid_argument` for a geometry that cannot be.
  SlabLedger(std::byte* state, const LedgerGeometry& geometry);

  /// A block of at least `bytes` (at least one), aligned to a chunk, with one lease, which `holder` has; nothing if
  /// no free piece is that large now, or the lock was not free in time. Waits for other users of the slab, briefly
  /// unless one of them stands still; throws what `membership.check()` throws if the session ends meanwhile, and
  /// `Errc::limit_reached` if there are as many leases as there can be.
  [[nodiscard]] std::optional<LeaseRef> allocate(std::uint64_t bytes, Owner holder, const Membership& membership,
                                                 Deadline deadline = Deadline::never()) const;
  /// One more lease on the block of `lease`, for `holder`. Waits and throws as `allocate`, for as long as it takes.
  [[nodiscard]] LeaseRef share(LeaseRef lease, Owner holder, const Membership& membership) const;
  /// Ends a lease of `holder`; the block goes with its last one. Throws `Errc::not_found`, and nothing has changed,
  /// if it has ended or is another's. Waits for other users of the slab for as long as it takes.
  void release(LeaseRef lease, Owner holder, const Membership& membership) const;
  /// Whether there is no other lease on its block, after what the dead have left was ended. False if the lock is not
  /// free now. Throws as `allocate`.
  [[nodiscard]] bool is_only(LeaseRef lease, const Membership& membership) const;
  /// Gives a lease from one holder to another, without waiting. False, and nothing has changed, if `from` does not
  /// have it: it has ended or is another's.
  [[nodiscard]] bool hand_over(LeaseRef lease, Owner from, Owner to) const;
  /// Makes `to` the holder, whoever was, without waiting.
  void adopt(LeaseRef lease, Owner to) const;

  /// Where the block of a lease lies.
  [[nodiscard]] BlockRange range_of(LeaseRef lease) const;
  /// Who has it.
  [[nodiscard]] Owner holder_of(LeaseRef lease) const;
  /// How many leases there are on its block; may change at any time.
  [[nodiscard]] std::uint32_t leases_beside(LeaseRef lease) const;
  /// Whether a block of `bytes` can never be, even in an empty slab.
  [[nodiscard]] bool is_too_large(std::uint64_t bytes) const noexcept { return pool_.is_too_large(bytes); }
  /// Whether `allocate` of `bytes` looks likely to succeed. Takes no lock: may be wrong either way while others work.
  [[nodiscard]] bool seems_to_have_room(std::uint64_t bytes) const noexcept;
  /// Free bytes; may lag behind for a moment.
  [[nodiscard]] std::uint64_t free_bytes() const noexcept { return pool_.free_bytes(); }
  /// Blocks in use; may lag behind for a moment.
  [[nodiscard]] std::uint64_t used_blocks() const noexcept { return pool_.used_blocks(); }
  /// Whether it is a lease that `participant` holds, or is about to send.
  [[nodiscard]] bool is_of(LeaseRef lease, Owner participant) const noexcept;
  /// All of it, exactly; looks at every block and lease, and the others wait for that long. Nothing if the lock was
  /// not free in time.
  [[nodiscard]] std::optional<LedgerUsage> usage(const Membership& membership,
                                                 Deadline deadline = Deadline::never()) const;

  /// For the keeper, after the kernel has reported the death of `dead`: makes the state whole if it died in the
  /// middle of an operation and ends its leases, except those of which `is_referenced` says that a message refers to
  /// them: these are in transit. Never waits for a participant: what another's lock is in the way of, it leaves to
  /// the next user. May be repeated. Throws `Errc::corrupt` if the state was spoiled; what can be used then still
  /// can.
  void recover(Owner dead, const std::function<bool(LeaseRef)>& is_referenced) const;
  /// For the keeper: ends a lease that is no participant's, in transit or kept; nothing if `holder` does not have it.
  /// Its block is freed by the next user.
  void drop(LeaseRef lease, Owner holder) const;
  /// Wakes all who wait for the ledger's lock, to look at the session.
  void wake_all() const noexcept { pool_.wake_all(); }

 private:
  [[nodiscard]] LeaseState used_state(LeaseRef lease) const;
  [[nodiscard]] std::uint32_t chunks_for(std::uint64_t bytes) const noexcept;

  LedgerView view_;
  BlockPool pool_;
  unsigned chunk_shift_;
};

}  // namespace drover
