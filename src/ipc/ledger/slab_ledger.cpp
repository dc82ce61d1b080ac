#include "ipc/ledger/slab_ledger.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/ledger_core.hpp"
#include "ipc/ledger/pool_guard.hpp"

namespace drover {
namespace {

[[noreturn]] void throw_ended(LeaseRef lease) {
  throw Error(Errc::not_found, fmt::format("lease {} of generation {} has ended", lease.index, lease.generation),
              "hold a lease for as long as the memory is used: what was released, or sent on by moving it, is gone");
}

[[noreturn]] void throw_not_held(LeaseRef lease, Owner holder, Owner found) {
  throw Error(Errc::not_found, fmt::format("lease {} of generation {} is held by {}, not by participant {}",
                                           lease.index, lease.generation, found, holder));
}

[[noreturn]] void throw_full(std::uint32_t capacity) {
  throw Error(Errc::limit_reached,
              fmt::format("there are {} leases on the blocks of a slab, and can be no more", capacity),
              "release tensors that are no longer used, or use fewer and larger ones");
}

void require_holder(Owner holder) {
  const Owner participant = participant_of(holder);
  const bool is_participant = participant != kNobody && participant <= kMaxParticipants;
  require(is_participant || holder == kInTransit || holder == kKept, "a lease has a holder");
}

}  // namespace

void throw_corrupt_ledger(const char* what, std::uint64_t index) {
  throw Error(Errc::corrupt, fmt::format("the ledger of a slab is spoiled: lease {} {}", index, what),
              "look for a process that writes where it must not");
}

std::size_t ledger_state_bytes(const LedgerGeometry& geometry) {
  const std::size_t pool = pool_state_bytes(geometry.pool);
  if (geometry.leases == 0 || geometry.leases > kMaxChunks) {
    throw Error(Errc::invalid_argument, fmt::format("a slab with {} leases cannot be made", geometry.leases),
                fmt::format("it has 1 to {}", kMaxChunks));
  }
  const std::size_t bytes = pool + sizeof(LedgerHeader) + geometry.leases * sizeof(LeaseCell);
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

void format_ledger(std::byte* state, const LedgerGeometry& geometry) {
  static_cast<void>(ledger_state_bytes(geometry));
  format_pool(state, geometry.pool);  // all else begins as zeroes
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

LeaseRef SlabLedger::share(LeaseRef lease, Owner holder, const Membership& membership) const {
  require_holder(holder);
  const CellGuard guard(view_.pool.header.lock, membership);
  const LedgerCore<> core(view_);
  core.end_orphans();
  if (!core.has_room()) throw_full(view_.capacity);
  const LeaseState state = used_state(lease);
  static_cast<void>(core.checked_block(lease.index, state.chunk));
  const auto shared = core.begin(state.chunk, holder);
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

// What waits to be ended may make room.
bool SlabLedger::seems_to_have_room(std::uint64_t bytes) const noexcept {
  if (is_too_large(bytes)) return false;
  if (view_.header.orphans.load(std::memory_order_relaxed) != kNoLink) return true;
  if (view_.pool.header.orphans.load(std::memory_order_relaxed) != kNoLink) return true;
  return FreeLists<NoSteps>(view_.pool).seem_to_have(chunks_for(bytes));
}

// Requires no lock: while it is held by whoever asks, its block stays.
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

bool SlabLedger::is_of(LeaseRef lease, Owner participant) const noexcept {
  if (lease.index >= view_.capacity) return false;
  const LeaseState state = LedgerCore<>(view_).at(lease.index);
  return state.is_used && state.generation == lease.generation && participant_of(state.holder) == participant;
}

}  // namespace drover
