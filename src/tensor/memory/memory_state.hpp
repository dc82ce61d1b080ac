// tensor/memory/memory_state.hpp: the slabs this process has mapped, and what it claims of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/memory/device_works.hpp"
#include "tensor/memory/foreign_memory.hpp"
#include "tensor/memory/late_look.hpp"
#include "tensor/memory/mapped_slab.hpp"

namespace drover {

/// The work behind Memory and Block. Safe for all threads. Nothing that may take long happens under the mutex: slabs
/// are made, mapped, unmapped and asked for their accounts without it.
class MemoryState : public std::enable_shared_from_this<MemoryState> {
 public:
  MemoryState(std::shared_ptr<Membership> membership, MemoryOptions options);
  /// Waits for work that still uses its blocks, and gives all imported memory back, used elsewhere or not; the latter
  /// is logged.
  ~MemoryState();
  MemoryState(const MemoryState&) = delete;
  MemoryState& operator=(const MemoryState&) = delete;

  [[nodiscard]] Block allocate(const Place& place, std::uint64_t bytes) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Block open(Lease&& lease) DROVER_EXCLUDES(mutex_);
  /// All of an allocation of another library. The keeper of those bytes that are used is held until nobody in the
  /// session has a lease on the block, or has it open. The same block for the same memory. Throws as
  /// `MappedSlab::make`.
  [[nodiscard]] Block import_memory(const ForeignMemory& memory, const KeptBytes& kept) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t claimed(const Place& place) const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<SlabUsage> usage() const DROVER_EXCLUDES(mutex_);
  /// Returns whether there was anything to give back.
  bool trim() DROVER_EXCLUDES(mutex_);
  /// After a claim of `bytes` in `slab` has ended, or was given away. Nothing in a forked child.
  void claim_ended(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept DROVER_EXCLUDES(mutex_);

  /// Releases a block, and then `keeper`, when all that uses it has ended: now, or at one of the next calls.
  void retire(Block&& block, std::vector<WorkTicket> uses, std::shared_ptr<void> keeper = nullptr) noexcept
      DROVER_EXCLUDES(mutex_);
  /// Releases those whose uses have ended since, or end until the deadline. Gives back imported memory that nobody
  /// uses any more. Nothing in a forked child.
  void release_retired(Deadline patience) noexcept DROVER_EXCLUDES(mutex_);
  /// Gives back imported memory that nobody uses any more, and asks no device. Nothing in a forked child.
  void end_imports() noexcept DROVER_EXCLUDES(mutex_);
  /// What this process does on its devices.
  [[nodiscard]] DeviceWorks& works() noexcept { return works_; }
  [[nodiscard]] const std::shared_ptr<Membership>& membership() const noexcept { return membership_; }

 private:
  using Slabs = std::vector<std::shared_ptr<MappedSlab>>;
  // Memory of another library. The anchor is a lease beside those of tensors: when it is the only one, nobody can
  // make another but this process.
  struct Import {
    ForeignMemory memory;
    std::shared_ptr<const Lease> anchor;  // shared: with threads that are sharing it, without the mutex
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<void>> keepers;  // by their first and end

    // Returns those that are not needed any more.
    std::vector<std::shared_ptr<void>> keep(const KeptBytes& bytes);
  };
  struct Known {
    std::shared_ptr<MappedSlab> slab;
    std::uint64_t claims = 0;          // blocks of this process in it
    Clock::time_point idle_since;      // when it was first seen to be of no use now; else zero
    std::unique_ptr<Import> imported;  // null for what is no import
  };

  [[nodiscard]] bool is_within_budget(const Place& place, std::uint64_t bytes) const DROVER_REQUIRES(mutex_);
  void check_budget(const Place& place, std::uint64_t bytes) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] Block allocate_in_known(const Place& place, std::uint64_t bytes) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Block allocate_in_new(const Place& place, std::uint64_t bytes) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::shared_ptr<MappedSlab> make_slab(const Place& place, std::uint64_t bytes)
      DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Block allocate_in(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes)
      DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::shared_ptr<MappedSlab> likely_at(const Place& place, std::uint64_t bytes) const
      DROVER_REQUIRES(mutex_);
  [[nodiscard]] Slabs own_at(const Place& place, std::uint64_t bytes) const DROVER_EXCLUDES(mutex_);
  void forget(const std::shared_ptr<MappedSlab>& slab) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::shared_ptr<MappedSlab> mapped(const Lease& lease) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Block claim(Lease&& lease, const std::shared_ptr<MappedSlab>& slab) DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool end_claim(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept
      DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_idle(const Known& known) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] static bool is_emptied(const Known& known) noexcept;
  // Idle slabs, in memory_idle.cpp.
  [[nodiscard]] static std::uint64_t idle_bytes_of(const MemoryOptions& options);
  [[nodiscard]] bool is_kept_when_idle(const Place& place) const noexcept;
  [[nodiscard]] std::uint64_t size_for_one(const Place& place, std::uint64_t bytes) const noexcept;
  [[nodiscard]] bool is_for(const MappedSlab& slab, const Place& place, std::uint64_t bytes) const noexcept;
  [[nodiscard]] bool may_become_idle(const Known& known) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool has_other_common(const MappedSlab& slab) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool keep_idle(Known& known) DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t idle_room(const Place& place, std::uint64_t more = 0) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::vector<Known> take_idle_above(const Place& place, std::uint64_t most) DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::chrono::milliseconds idle_time_of(const MappedSlab& slab) const noexcept;
  bool look_after_idle(bool is_by_handle) noexcept DROVER_EXCLUDES(mutex_);
  bool look_after_retired() noexcept DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Block import_again(const ForeignMemory& memory, const KeptBytes& kept) DROVER_EXCLUDES(mutex_);
  void await_closing() noexcept DROVER_EXCLUDES(mutex_);
  [[nodiscard]] static bool is_over(const Known& known) noexcept;
  [[nodiscard]] std::vector<Known> take_if(const std::function<bool(const Known&)>& is_taken) DROVER_REQUIRES(mutex_);
  [[noreturn]] void throw_exhausted(const Error& error, const Place& place) const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::string who_holds_what(const Place& place) const DROVER_EXCLUDES(mutex_);

  const std::shared_ptr<Membership> membership_;
  const MemoryOptions options_;
  const std::uint64_t idle_bytes_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, Known> slabs_ DROVER_GUARDED_BY(mutex_);  // by generation
  std::map<Place, std::uint64_t> claimed_ DROVER_GUARDED_BY(mutex_);
  bool has_new_slabs_ DROVER_GUARDED_BY(mutex_) = false;
  std::atomic<std::size_t> imports_{0};  // of the slabs
  DeviceWorks works_;                    // after the slabs, so that all work ends before the memory goes
  LateLook later_;                       // last, with the next: they use everything
  LateLook soon_;
};

}  // namespace drover
