// What the keeper does with the ledger of a slab after a death.
#include <exception>
#include <functional>

#include "ipc/ledger/ledger_core.hpp"
#include "ipc/ledger/pool_recovery.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover {
namespace {

using IsReferenced = std::function<bool(LeaseRef)>;

// Makes everything anew that is derived from the words of leases, and frees the blocks that have none. Requires: the
// lock is held, by the dead, and the pool is whole.
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
  // Each block of the slab, with the length it has before `visit`: freeing one may unite it with its neighbours, but
  // the place behind it stays the first of an extent, or a leftover that says "free" with a length that leads on.
  template <class Visit>
  void for_each_block(Visit visit) const {
    Extent extent;
    for (std::uint32_t chunk = 0; chunk < core_.view().pool.chunks; chunk += extent.length) {
      extent = core_.pool().checked(chunk);
      if (extent.is_used && extent.owner == kSlabItself) visit(chunk, extent);
    }
  }

  // A lease on what is no block was spoilt: it ends without further ado.
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

// Ends the leases of the dead by `end`, except those to which messages refer. Others' leases do not change hands to
// the dead meanwhile, so none is passed over.
template <class End>
void for_each_lease_of(Owner dead, const LedgerCore<>& core, const IsReferenced& is_referenced, End end) {
  for (std::uint32_t index = 0; index < core.fresh(); ++index) {
    const LeaseState lease = core.at(index);
    if (!lease.is_used || participant_of(lease.holder) != dead) continue;
    if (!is_referenced({.index = index, .generation = lease.generation})) {
      end(index, lease);
      continue;
    }
    LeaseState in_transit = lease;
    in_transit.holder = kInTransit;
    static_cast<void>(core.exchange(index, lease, in_transit));  // not if somebody alive has adopted it
  }
}

// One lease that was spoilt must not keep the others of the dead.
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

void SlabLedger::recover(Owner dead, const IsReferenced& is_referenced) const {
  CellLockLayout& lock = view_.pool.header.lock;
  const LedgerCore<> core(view_);
  const LockOfTheDead release(lock, dead);
  if (drover::holder_of(lock) == dead) {
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
    static_cast<void>(core.orphan(index, lease));  // invalid, if nothing more: the number will be another's
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

}  // namespace drover
