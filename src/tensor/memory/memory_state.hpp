// tensor/memory/memory_state.hpp: the memory of a session as this process uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/memory/backoff_poller.hpp"
#include "tensor/memory/device_works.hpp"
#include "tensor/memory/foreign_memory.hpp"
#include "tensor/memory/held_parts.hpp"
#include "tensor/memory/idle_slabs.hpp"
#include "tensor/memory/imports.hpp"
#include "tensor/memory/retired_blocks.hpp"
#include "tensor/memory/slab_table.hpp"

namespace drover::tensor {

/// The work behind Memory and Block: maps slabs, allocates in them, and counts what this process claims. Safe for all
/// threads. Nothing that may take long happens under the table's mutex: slabs are made, mapped, unmapped and asked
/// for their usage without it. Methods that say so do nothing in a forked child.
class MemoryState : public std::enable_shared_from_this<MemoryState> {
 public:
  MemoryState(std::shared_ptr<Membership> membership, MemoryOptions options);
  /// Waits for work that still uses its blocks, then gives all imported memory back.
  ~MemoryState();
  MemoryState(const MemoryState&) = delete;
  MemoryState& operator=(const MemoryState&) = delete;

  [[nodiscard]] Block allocate(const Place& place, std::uint64_t bytes) DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] Block open(Lease&& lease) DROVER_EXCLUDES(table_.mutex);
  /// The whole allocation, see Imports::open. The same block for the same memory.
  [[nodiscard]] Block import_memory(const ForeignMemory& memory, const KeptBytes& kept) DROVER_EXCLUDES(table_.mutex);
  /// The first `bytes` of a file in which another library has shared memory. The same block for the same file.
  [[nodiscard]] Block import_file(const Fd& file, std::uint64_t bytes) DROVER_EXCLUDES(table_.mutex);
  /// A lease for one array in a block that another library divides; see HeldParts::hold.
  [[nodiscard]] Lease hold_part(const Lease& whole, std::uint64_t bytes, std::shared_ptr<void> keep_alive)
      DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] std::uint64_t claimed(const Place& place) const DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] std::vector<SlabUsage> usage() const DROVER_EXCLUDES(table_.mutex);
  /// Returns whether there was anything to give back.
  bool trim() DROVER_EXCLUDES(table_.mutex);
  /// Call after a claim of `bytes` in `slab` was released or given away. Does nothing in a forked child.
  void claim_ended(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept
      DROVER_EXCLUDES(table_.mutex);

  /// Releases a block, and then `retired.keep_alive`, when all uses have ended: now, or in a later call.
  void retire(Block&& block, RetiredBlock retired) noexcept DROVER_EXCLUDES(table_.mutex);
  /// Releases retired blocks whose uses have ended, or end until the deadline, then unused imports and parts. Does
  /// nothing in a forked child, nor during a ReleasePause.
  void release_retired(Deadline patience) noexcept DROVER_EXCLUDES(table_.mutex);
  /// What this process does on its devices.
  [[nodiscard]] DeviceWorks& works() noexcept { return works_; }
  [[nodiscard]] const std::shared_ptr<Membership>& membership() const noexcept { return membership_; }

 private:
  using Slabs = std::vector<std::shared_ptr<MappedSlab>>;

  [[nodiscard]] bool is_within_budget(const Place& place, std::uint64_t bytes) const DROVER_REQUIRES(table_.mutex);
  void check_budget(const Place& place, std::uint64_t bytes) const DROVER_REQUIRES(table_.mutex);
  [[nodiscard]] Block allocate_in_mapped(const Place& place, std::uint64_t bytes) DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] Block allocate_in_new(const Place& place, std::uint64_t bytes) DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] Block allocate_in(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes)
      DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] std::shared_ptr<MappedSlab> make_slab(const Place& place, std::uint64_t bytes)
      DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] std::shared_ptr<MappedSlab> likely_slab(const Place& place, std::uint64_t bytes) const
      DROVER_REQUIRES(table_.mutex);
  [[nodiscard]] Slabs slabs_for(const Place& place, std::uint64_t bytes) const DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] Block claim(Lease&& lease, const std::shared_ptr<MappedSlab>& slab) DROVER_REQUIRES(table_.mutex);
  [[nodiscard]] Block claim(Lease&& lease, SlabEntry& entry) DROVER_REQUIRES(table_.mutex);
  [[nodiscard]] std::vector<SlabEntry> end_claim(const std::shared_ptr<MappedSlab>& slab,
                                                 std::uint64_t bytes) noexcept DROVER_EXCLUDES(table_.mutex);
  void drop(std::vector<SlabEntry> slabs) noexcept DROVER_EXCLUDES(table_.mutex);
  bool poll_idle() noexcept DROVER_EXCLUDES(table_.mutex);
  void release_ended(Deadline patience) noexcept DROVER_EXCLUDES(table_.mutex);
  [[noreturn]] void throw_exhausted(const Error& error, const Place& place) const DROVER_EXCLUDES(table_.mutex);

  const std::shared_ptr<Membership> membership_;
  const MemoryOptions options_;
  const IdleSlabs idle_;
  SlabTable table_;
  bool has_new_slabs_ DROVER_GUARDED_BY(table_.mutex) = false;
  Imports imports_;
  std::unique_ptr<HeldParts> parts_ = std::make_unique<HeldParts>();
  DeviceWorks works_;          // after the slabs: all work ends before its memory goes
  RetiredBlocks retired_;      // after the works: blocks go before their streams
  BackoffPoller idle_poller_;  // the pollers come last, since they use everything else
  BackoffPoller retired_poller_;
};

}  // namespace drover::tensor
