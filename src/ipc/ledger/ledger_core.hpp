// ipc/ledger/ledger_core.hpp: how the leases of a slab change, step by step. What SlabLedger does under the pool's
// lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "ipc/ledger/block_pool_core.hpp"
#include "ipc/ledger/ledger_layout.hpp"

namespace drover::ipc {

/// Throws `Errc::corrupt`: the state of a ledger is impossible at the lease in cell `index`.
[[noreturn]] void throw_corrupt_ledger(const char* what, std::uint64_t index);

/// A view of the state. Requires, unless noted: the pool's lock is held. Throws `Errc::corrupt` if the state is
/// impossible.
template <class Steps = NoSteps>
class LedgerCore {
 public:
  explicit LedgerCore(const LedgerView& view) noexcept : view_(view), pool_(view.pool) {}

  /// A new lease.
  struct Lease {
    std::uint32_t index = 0;
    LeaseState state;
  };

  /// Whether there is a cell for another lease.
  [[nodiscard]] bool has_room() const noexcept {
    return view_.header.free.load(std::memory_order_relaxed) != kNoLink || fresh() < view_.capacity;
  }

  /// A block of `length` chunks with one lease; nullopt if no free extent is that long. Requires: `has_room`.
  [[nodiscard]] std::optional<Lease> allocate(std::uint32_t length, Owner holder) const {
    const auto block = pool_.allocate(length, kSlabItself);
    if (!block) return std::nullopt;
    write<Steps>(leases_at(block->chunk), 0U);
    return begin(block->chunk, holder);
  }

  /// Another lease on the block at `chunk`, for a part of it. Requires: `has_room`.
  [[nodiscard]] Lease begin(std::uint32_t chunk, Owner holder, std::uint32_t part = kWhole) const {
    const std::uint32_t index = take_cell();
    const LeaseState state{.is_used = true, .chunk = chunk, .holder = holder, .generation = at(index).generation};
    change(leases_at(chunk), 1U);
    change(view_.header.used, 1U);
    write<Steps>(view_.cells[index].part, part);
    write<Steps>(view_.cells[index].word, encode(state), std::memory_order_release);  // the commit
    return {.index = index, .state = state};
  }

  /// Ends a lease if its word is still `expected`, and frees its block with the last one. Returns whether it did.
  [[nodiscard]] bool end(std::uint32_t index, const LeaseState& expected) const {
    const Extent block = checked_block(index, expected.chunk);
    const std::uint32_t others = leases_at(expected.chunk).load(std::memory_order_relaxed);
    if (others == 0) throw_corrupt_ledger("is on a block that has no leases", index);
    if (!exchange(index, expected, ended(expected))) return false;  // the commit
    give_cell(index);
    change(view_.header.used, 0U - 1U);
    change(leases_at(expected.chunk), 0U - 1U);
    if (others == 1 && !pool_.free(expected.chunk, block))
      throw_corrupt_ledger("is on a block of another owner", index);
    return true;
  }

  /// Ends the leases that the keeper has marked while another participant held the lock.
  void end_orphans() const {
    if (view_.header.orphans.load(std::memory_order_relaxed) == kNoLink) return;
    Steps::before_write();
    for (Link link = view_.header.orphans.exchange(kNoLink); link != kNoLink;) {
      if (link > view_.capacity) throw_corrupt_ledger("does not exist but is listed as an orphan", link);
      const std::uint32_t index = link - 1;
      link = view_.cells[index].next.load(std::memory_order_relaxed);
      const LeaseState orphan = at(index);
      if (!is_orphan(orphan) || !end(index, orphan))
        throw_corrupt_ledger("is listed as an orphan but is in use", index);
    }
  }

  /// The lease in a cell's word. Requires no lock.
  [[nodiscard]] LeaseState at(std::uint32_t index) const noexcept {
    return decode_lease(view_.cells[index].word.load());
  }

  /// The part that the lease in a used cell stands for. Requires no lock.
  [[nodiscard]] std::uint32_t part_at(std::uint32_t index) const noexcept {
    return view_.cells[index].part.load(std::memory_order_relaxed);
  }

  /// Changes a used word if it is still `expected`. Requires no lock.
  [[nodiscard]] bool exchange(std::uint32_t index, const LeaseState& expected, const LeaseState& wanted) const {
    std::uint64_t seen = encode(expected);
    Steps::before_write();
    return view_.cells[index].word.compare_exchange_strong(seen, encode(wanted));
  }

  /// Marks a lease for the next holder of the lock to end if its word is still `expected`. Requires no lock.
  [[nodiscard]] bool orphan(std::uint32_t index, const LeaseState& expected) const {
    LeaseState marked = expected;
    marked.holder = kNobody;
    marked.generation = next_generation(expected);
    if (!exchange(index, expected, marked)) return false;
    Link first = view_.header.orphans.load();
    do {
      view_.cells[index].next.store(first);
    } while (!view_.header.orphans.compare_exchange_weak(first, index + 1));
    return true;
  }

  /// Whether a lease has no holder and waits to be ended.
  [[nodiscard]] static bool is_orphan(const LeaseState& lease) noexcept {
    return lease.is_used && lease.holder == kNobody;
  }

  /// Number of cells that were ever used, limited to the capacity.
  [[nodiscard]] std::uint32_t fresh() const noexcept {
    return std::min(view_.header.fresh.load(std::memory_order_relaxed), view_.capacity);
  }

  /// The block a lease is on.
  [[nodiscard]] Extent checked_block(std::uint32_t index, std::uint32_t chunk) const {
    if (chunk >= view_.pool.chunks) throw_corrupt_ledger("is on an impossible block", index);
    const Extent block = pool_.checked(chunk);
    if (!block.is_used || block.owner != kSlabItself) throw_corrupt_ledger("is on a block that is not in use", index);
    return block;
  }

  /// Puts the cell of an ended lease onto the stack.
  void give_cell(std::uint32_t index) const {
    write<Steps>(view_.cells[index].next, view_.header.free.load(std::memory_order_relaxed));
    write<Steps>(view_.header.free, index + 1);
  }

  [[nodiscard]] const LedgerView& view() const noexcept { return view_; }
  [[nodiscard]] const BlockPoolCore<Steps>& pool() const noexcept { return pool_; }

  [[nodiscard]] std::atomic<std::uint32_t>& leases_at(std::uint32_t chunk) const noexcept {
    return view_.pool.cells[chunk].leases;
  }

 private:
  static std::uint32_t next_generation(const LeaseState& lease) noexcept {
    return (lease.generation + 1) & kGenerationMask;
  }

  // The generation of an orphan was increased when it became one.
  static LeaseState ended(const LeaseState& lease) noexcept {
    return {.generation = is_orphan(lease) ? lease.generation : next_generation(lease)};
  }

  [[nodiscard]] std::uint32_t take_cell() const {
    const Link link = view_.header.free.load(std::memory_order_relaxed);
    if (link == kNoLink) {
      const std::uint32_t index = fresh();
      if (index == view_.capacity) throw_corrupt_ledger("has no free cell", index);
      write<Steps>(view_.header.fresh, index + 1, std::memory_order_release);  // before the word: rule 4 finds it
      return index;
    }
    if (link > view_.capacity || at(link - 1).is_used)
      throw_corrupt_ledger("is in the list of free cells but is not free", link);
    write<Steps>(view_.header.free, view_.cells[link - 1].next.load(std::memory_order_relaxed));
    return link - 1;
  }

  static void change(std::atomic<std::uint32_t>& counter, std::uint32_t difference) {
    write<Steps>(counter, counter.load(std::memory_order_relaxed) + difference);
  }

  LedgerView view_;
  BlockPoolCore<Steps> pool_;
};

}  // namespace drover::ipc
