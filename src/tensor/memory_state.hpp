// tensor/memory_state.hpp: the slabs this process has mapped, and what it claims of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/tensor/memory.hpp"
#include "tensor/mapped_slab.hpp"

namespace drover {

/// The work behind Memory and Block. Safe for all threads.
class MemoryState : public std::enable_shared_from_this<MemoryState> {
 public:
  MemoryState(std::shared_ptr<Membership> membership, MemoryOptions options);

  [[nodiscard]] Block allocate(const Place& place, std::uint64_t bytes) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Block open(Lease lease) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t claimed(const Place& place) const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<SlabUsage> usage() const DROVER_EXCLUDES(mutex_);
  void trim() DROVER_EXCLUDES(mutex_);
  /// After a claim of `bytes` in `slab` has ended, or was given away. Nothing in a forked child.
  void claim_ended(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept DROVER_EXCLUDES(mutex_);

 private:
  using Slabs = std::vector<std::shared_ptr<MappedSlab>>;

  void check_budget(const Place& place, std::uint64_t bytes) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] Block try_allocate(const Place& place, std::uint64_t bytes) DROVER_REQUIRES(mutex_);
  void add_slab(const Place& place, std::uint64_t bytes) DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<MappedSlab> mapped(const Lease& lease) DROVER_REQUIRES(mutex_);
  [[nodiscard]] Block claim(Lease lease, std::shared_ptr<MappedSlab> slab) DROVER_REQUIRES(mutex_);
  void drop_if_idle(const std::shared_ptr<MappedSlab>& slab) noexcept DROVER_REQUIRES(mutex_);
  void drop_idle(std::size_t kept_of_each_place) noexcept DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::string who_holds_what(const Place& place) const DROVER_REQUIRES(mutex_);
  [[nodiscard]] std::vector<SlabUsage> usage_of_all() const DROVER_REQUIRES(mutex_);

  const std::shared_ptr<Membership> membership_;
  const MemoryOptions options_;
  mutable Mutex mutex_;
  std::map<Place, Slabs> own_ DROVER_GUARDED_BY(mutex_);  // in which this process allocates
  std::map<std::uint64_t, std::shared_ptr<MappedSlab>> received_ DROVER_GUARDED_BY(mutex_);  // others', by generation
  std::map<Place, std::uint64_t> claimed_ DROVER_GUARDED_BY(mutex_);
};

}  // namespace drover
