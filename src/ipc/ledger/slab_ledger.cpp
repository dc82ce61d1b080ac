#include "ipc/ledger/slab_ledger.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <functional>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/ledger_core.hpp"
#include "ipc/ledger/pool_lock.hpp"

namespace drover::ipc {
namespace {

using IsLeaseReferenced = std::function<bool(LeaseRef)>;

[[noreturn]] void throw_ended(LeaseRef lease) {
  throw Error(Errc::not_found, fmt::format("lease {} of generation {} has ended", lease.index, lease.generation),
              "keep a lease while the memory is used; a released or sent lease has ended");
}

[[noreturn]] void throw_not_held(LeaseRef lease, Owner holder, Owner found) {
  throw Error(Errc::not_found, fmt::format("lease {} of generation {} is held by {}, not by participant {}",
                                           lease.index, lease.generation, found, holder));
}

[[noreturn]] void throw_full(std::uint32_t capacity) {
  throw Error(Errc::limit_reached, fmt::format("a slab has {} leases, its limit", capacity),
              "release tensors that are no longer used, or use fewer and larger ones");
}

void require_holder(Owner holder) {
  const Owner participant = participant_of(holder);
  const bool is_participant = participant != kNobody && participant <= kMaxParticipants;
  require(is_participant || holder == kInTransit || holder == kKept, "a lease has a holder");
}

// Recomputes everything that is derived from the words of leases, and frees blocks without leases. Requires: the lock
// is held, by the dead, and the pool is consistent.
class LeaseRebuild {
 public:
  explicit LeaseRebuild(const LedgerCore<>& core) noexcept : core_(core) {}

  void run() {
    LedgerHeader& header = core_.view().header;
    header.free = kNoLink;
    header.orphans = kNoLink;
    for_each_block([&](std::uint32_t chunk, const Extent&) { core_.leases_at(chunk) = 0; });
    for (std::uint32_t index = 0; index < core_.fresh(); ++index) add(index);
    header.used = used_;
    for_each_block([&](std::uint32_t chunk, const Extent& block) {
      if (core_.leases_at(chunk) == 0) static_cast<void>(core_.pool().free(chunk, block));
    });
  }

 private:
  // Visits each block of the slab. Advances by its length before `visit`: freeing a block may coalesce it with its
  // neighbours, but the place behind it stays the start of an extent, or a free leftover whose length leads on.
  template <class Visit>
  void for_each_block(Visit visit) const {
    Extent extent;
    for (std::uint32_t chunk = 0; chunk < core_.view().pool.chunks; chunk += extent.length) {
      extent = core_.pool().checked(chunk);
      if (extent.is_used && extent.owner == kSlabItself) visit(chunk, extent);
    }
  }

  // A lease that is not on a block is corrupt and just ends.
  void add(std::uint32_t index) {
    const LeaseState lease = core_.at(index);
    if (lease.is_used && !LedgerCore<>::is_orphan(lease) && is_on_block(lease)) {
      core_.leases_at(lease.chunk).fetch_add(1, std::memory_order_relaxed);
      ++used_;
      return;
    }
    const std::uint32_t step = lease.is_used && !LedgerCore<>::is_orphan(lease) ? 1 : 0;
    const LeaseState ended{.generation = (lease.generation + step) & kGenerationMask};
    if (lease.is_used) core_.view().cells[index].word.store(encode(ended));
    core_.give_cell(index);
  }

  [[nodiscard]] bool is_on_block(const LeaseState& lease) const {
    if (lease.chunk >= core_.view().pool.chunks) return false;
    const Extent block = core_.pool().extent_at(lease.chunk);
    return block.is_used && block.owner == kSlabItself;
  }

  const LedgerCore<>& core_;
  std::uint32_t used_ = 0;
};

// Ends the leases of the dead by `end`, except those to which messages refer. No lease comes to the dead meanwhile,
// so none is missed.
template <class End>
void for_each_lease_of(Owner dead, const LedgerCore<>& core, const IsLeaseReferenced& is_referenced, End end) {
  for (std::uint32_t index = 0; index < core.fresh(); ++index) {
    const LeaseState lease = core.at(index);
    if (!lease.is_used || participant_of(lease.holder) != dead) continue;
    if (!is_referenced({.index = index, .generation = lease.generation})) {
      end(index, lease);
      continue;
    }
    LeaseState in_transit = lease;
    in_transit.holder = kInTransit;
    static_cast<void>(core.exchange(index, lease, in_transit));  // fails if a living participant has adopted it
  }
}

// One corrupt lease must not keep the other leases of the dead alive.
template <class Work>
std::exception_ptr try_to(Work work) {
  try {
    work();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

void throw_corrupt_ledger(const char* what, std::uint64_t index) {
  throw Error(Errc::corrupt, fmt::format("the ledger of a slab is corrupt: lease {} {}", index, what),
              "look for a process that writes outside its memory");
}

std::size_t ledger_state_bytes(const LedgerGeometry& geometry) {
  const std::size_t pool = pool_state_bytes(geometry.pool);
  if (geometry.leases == 0 || geometry.leases > kMaxChunks) {
    throw Error(Errc::invalid_argument, fmt::format("cannot make a slab with {} leases", geometry.leases),
                fmt::format("use 1 to {}", kMaxChunks));
  }
  const std::size_t bytes = pool + sizeof(LedgerHeader) + geometry.leases * sizeof(LeaseCell);
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

void format_ledger(std::byte* state, const LedgerGeometry& geometry) {
  static_cast<void>(ledger_state_bytes(geometry));
  format_pool(state, geometry.pool);  // the rest is zero
}

SlabLedger::SlabLedger(std::byte* state, const LedgerGeometry& geometry)
    : view_(state, geometry),
      pool_(state, geometry.pool),
      chunk_shift_(static_cast<unsigned>(std::countr_zero(geometry.pool.chunk_bytes))) {}

std::uint32_t SlabLedger::chunks_for(std::uint64_t bytes) const noexcept {
  return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes - 1) >> chunk_shift_) + 1;
}

std::optional<LeaseRef> SlabLedger::allocate(std::uint64_t bytes, Owner holder, const Membership& membership,
                                             Deadline deadline) const {
  require_holder(holder);
  if (is_too_large(bytes)) return std::nullopt;
  const PoolGuard guard(view_.pool.header.lock, membership, deadline);
  if (!guard.is_held()) return std::nullopt;
  const LedgerCore<> core(view_);
  core.end_orphans();
  if (!core.has_room()) throw_full(view_.capacity);
  const auto lease = core.allocate(chunks_for(bytes), holder);
  if (!lease) return std::nullopt;
  return LeaseRef{.index = lease->index, .generation = lease->state.generation};
}

LeaseRef SlabLedger::share(LeaseRef lease, Owner holder, const Membership& membership,
                           std::optional<std::uint32_t> part) const {
  require_holder(holder);
  const CellGuard guard(view_.pool.header.lock, membership);
  const LedgerCore<> core(view_);
  core.end_orphans();
  if (!core.has_room()) throw_full(view_.capacity);
  const LeaseState state = used_state(lease);
  static_cast<void>(core.checked_block(lease.index, state.chunk));
  const auto shared = core.begin(state.chunk, holder, part.value_or(core.part_at(lease.index)));
  return {.index = shared.index, .generation = shared.state.generation};
}

void SlabLedger::release(LeaseRef lease, Owner holder, const Membership& membership) const {
  const CellGuard guard(view_.pool.header.lock, membership);
  const LedgerCore<> core(view_);
  core.end_orphans();
  for (;;) {
    const LeaseState state = used_state(lease);
    if (state.holder != holder) throw_not_held(lease, holder, state.holder);
    if (core.end(lease.index, state)) return;
  }
}

bool SlabLedger::is_only(LeaseRef lease, const Membership& membership) const {
  const PoolGuard guard(view_.pool.header.lock, membership, Deadline::after({}));
  if (!guard.is_held()) return false;
  LedgerCore<>(view_).end_orphans();
  return leases_beside(lease) == 1;
}

// Under the lock, since a lease that is shared and then ended would be missed between two cells.
std::optional<std::vector<std::uint32_t>> SlabLedger::parts_of(LeaseRef lease, const Membership& membership) const {
  const PoolGuard guard(view_.pool.header.lock, membership, Deadline::after({}));
  if (!guard.is_held()) return std::nullopt;
  const LedgerCore<> core(view_);
  core.end_orphans();
  const std::uint32_t chunk = used_state(lease).chunk;
  std::vector<std::uint32_t> parts;
  for (std::uint32_t index = 0; index < core.fresh(); ++index) {
    const LeaseState each = core.at(index);
    if (!each.is_used || each.chunk != chunk) continue;
    if (const std::uint32_t part = core.part_at(index); part != kWhole) parts.push_back(part);
  }
  std::ranges::sort(parts);
  const auto repeated = std::ranges::unique(parts);
  parts.erase(repeated.begin(), repeated.end());
  return parts;
}

bool SlabLedger::hand_over(LeaseRef lease, Owner from, Owner to) const {
  require_holder(to);
  if (lease.index >= view_.capacity) return false;
  const LedgerCore<> core(view_);
  const LeaseState state = core.at(lease.index);
  if (!state.is_used || state.generation != lease.generation || state.holder != from) return false;
  LeaseState changed = state;
  changed.holder = to;
  return core.exchange(lease.index, state, changed);
}

void SlabLedger::adopt(LeaseRef lease, Owner to) const {
  require_holder(to);
  for (;;) {
    const LeaseState state = used_state(lease);
    LeaseState changed = state;
    changed.holder = to;
    if (LedgerCore<>(view_).exchange(lease.index, state, changed)) return;
  }
}

// Ending orphans may make room.
bool SlabLedger::seems_to_have_room(std::uint64_t bytes) const noexcept {
  if (is_too_large(bytes)) return false;
  if (view_.header.orphans.load(std::memory_order_relaxed) != kNoLink) return true;
  if (view_.pool.header.orphans.load(std::memory_order_relaxed) != kNoLink) return true;
  return FreeLists<NoSteps>(view_.pool).seem_to_have(chunks_for(bytes));
}

// Requires no lock: the block exists while the caller has the lease.
LeaseState SlabLedger::used_state(LeaseRef lease) const {
  if (lease.index >= view_.capacity) throw_ended(lease);
  const LeaseState state = LedgerCore<>(view_).at(lease.index);
  if (!state.is_used || state.generation != lease.generation) throw_ended(lease);
  return state;
}

BlockRange SlabLedger::range_of(LeaseRef lease) const {
  const LeaseState state = used_state(lease);
  const Extent block = LedgerCore<>(view_).checked_block(lease.index, state.chunk);
  return {.offset = std::uint64_t{state.chunk} << chunk_shift_, .bytes = std::uint64_t{block.length} << chunk_shift_};
}

Owner SlabLedger::holder_of(LeaseRef lease) const { return used_state(lease).holder; }

std::uint32_t SlabLedger::leases_beside(LeaseRef lease) const {
  const LeaseState state = used_state(lease);
  static_cast<void>(LedgerCore<>(view_).checked_block(lease.index, state.chunk));
  return view_.pool.cells[state.chunk].leases.load(std::memory_order_relaxed);
}

std::optional<LedgerUsage> SlabLedger::usage(const Membership& membership, Deadline deadline) const {
  const PoolGuard guard(view_.pool.header.lock, membership, deadline);
  if (!guard.is_held()) return std::nullopt;
  const LedgerCore<> core(view_);
  core.end_orphans();
  LedgerUsage usage{.total_bytes = std::uint64_t{view_.pool.chunks} << chunk_shift_};
  Extent extent;
  for (std::uint32_t chunk = 0; chunk < view_.pool.chunks; chunk += extent.length) {
    extent = core.pool().checked(chunk);
    const std::uint64_t bytes = std::uint64_t{extent.length} << chunk_shift_;
    if (extent.is_used) {
      ++usage.blocks;
    } else {
      usage.free_bytes += bytes;
      usage.largest_free_bytes = std::max(usage.largest_free_bytes, bytes);
    }
  }
  for (std::uint32_t index = 0; index < core.fresh(); ++index) {
    const LeaseState lease = core.at(index);
    if (!lease.is_used || LedgerCore<>::is_orphan(lease)) continue;
    LedgerUsage::Share& share = usage.holders[participant_of(lease.holder)];
    ++share.leases;
    share.bytes += std::uint64_t{core.checked_block(index, lease.chunk).length} << chunk_shift_;
  }
  return usage;
}

void SlabLedger::recover(Owner dead, const IsLeaseReferenced& is_referenced) const {
  CellLockLayout& lock = view_.pool.header.lock;
  const LedgerCore<> core(view_);
  const LockOfTheDead release(lock, dead);
  if (drover::ipc::holder_of(lock) == dead) {
    rebuild(core.pool());
    LeaseRebuild(core).run();
  } else if (!try_claim_for(dead, lock)) {
    for_each_lease_of(dead, core, is_referenced, [&](std::uint32_t index, const LeaseState& lease) {
      static_cast<void>(core.orphan(index, lease));
    });
    return;
  }
  std::exception_ptr problem = try_to([&] { core.end_orphans(); });
  for_each_lease_of(dead, core, is_referenced, [&](std::uint32_t index, const LeaseState& lease) {
    const auto failure = try_to([&] { static_cast<void>(core.end(index, lease)); });
    if (failure == nullptr) return;
    static_cast<void>(core.orphan(index, lease));  // at least invalid: the number will be reused
    problem = failure;
  });
  if (problem != nullptr) std::rethrow_exception(problem);
}

void SlabLedger::drop(LeaseRef lease, Owner holder) const {
  if (lease.index >= view_.capacity) return;
  const LedgerCore<> core(view_);
  const LeaseState state = core.at(lease.index);
  if (!state.is_used || state.generation != lease.generation || state.holder != holder) return;
  static_cast<void>(core.orphan(lease.index, state));
}

bool SlabLedger::has_leases() const noexcept {
  const LedgerCore<> core(view_);
  for (std::uint32_t index = 0; index < core.fresh(); ++index) {
    const LeaseState lease = core.at(index);
    if (lease.is_used && !LedgerCore<>::is_orphan(lease)) return true;
  }
  return false;
}

bool SlabLedger::is_of(LeaseRef lease, Owner participant) const noexcept {
  if (lease.index >= view_.capacity) return false;
  const LeaseState state = LedgerCore<>(view_).at(lease.index);
  return state.is_used && state.generation == lease.generation && participant_of(state.holder) == participant;
}

}  // namespace drover::ipc
