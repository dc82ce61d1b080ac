#include "tensor/memory_state.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover {
namespace {

// Somebody may stand still in the ledger of a slab; then another slab is better than waiting.
constexpr std::chrono::milliseconds kLedgerPatience{100};

std::string name_of(Owner holder) {
  if (holder == kInTransit) return "in transit";
  if (holder == kKept) return "kept";
  return fmt::format("participant {}", holder);
}

SlabUsage usage_of(const MappedSlab& slab, const Membership& membership) {
  const LedgerUsage ledger = slab.book().ledger().usage(membership);
  SlabUsage usage{.place = slab.place(),
                  .handle = slab.book().object().handle(),
                  .is_own = slab.is_own(),
                  .bytes = slab.bytes(),
                  .free_bytes = ledger.free_bytes,
                  .blocks = ledger.blocks,
                  .holders = {}};
  for (const auto& [holder, share] : ledger.holders) {
    usage.holders.push_back({.name = name_of(holder), .leases = share.leases, .bytes = share.bytes});
  }
  return usage;
}

}  // namespace

MemoryState::MemoryState(std::shared_ptr<Membership> membership, MemoryOptions options)
    : membership_(std::move(membership)), options_(std::move(options)) {
  require(membership_ != nullptr, "memory needs a session", "pass a Session that is open");
  require(options_.slab_bytes >= kMiB, "a slab of less than 1 MiB was asked for", "leave slab_bytes as it is");
}

Block MemoryState::allocate(const Place& place, std::uint64_t bytes) {
  require(bytes > 0, "a block has at least one byte");
  const MutexLock lock(mutex_);
  check_budget(place, bytes);
  Block block = try_allocate(place, bytes);
  if (block.is_open()) return block;
  add_slab(place, bytes);
  block = try_allocate(place, bytes);
  if (block.is_open()) return block;
  throw Error(Errc::internal,
              fmt::format("a new slab at {} has no room for {}", to_string(place), format_bytes(bytes)),
              "please report this");
}

void MemoryState::check_budget(const Place& place, std::uint64_t bytes) const {
  const auto budget = options_.budgets.find(place);
  if (budget == options_.budgets.end()) return;
  const auto claimed = claimed_.find(place);
  const std::uint64_t now = claimed == claimed_.end() ? 0 : claimed->second;
  if (bytes <= budget->second && now <= budget->second - bytes) return;
  throw Error(Errc::limit_reached,
              fmt::format("{} at {} would exceed the budget of this process: it claims {} of {}", format_bytes(bytes),
                          to_string(place), format_bytes(now), format_bytes(budget->second)),
              "release what is no longer used, or raise MemoryOptions::budgets");
}

// The slab made last is the one with most room.
Block MemoryState::try_allocate(const Place& place, std::uint64_t bytes) {
  auto& slabs = own_[place];
  for (auto at = slabs.rbegin(); at != slabs.rend(); ++at) {
    Lease lease = (*at)->book().allocate(bytes, Deadline::after(kLedgerPatience));
    if (lease.is_open()) return claim(std::move(lease), *at);
  }
  return {};
}

void MemoryState::add_slab(const Place& place, std::uint64_t bytes) {
  const std::uint64_t wanted = bytes > options_.slab_bytes / 2 ? bytes : options_.slab_bytes;
  drop_idle(0);
  try {
    own_[place].push_back(MappedSlab::make(membership_, place, wanted));
  } catch (const Error& error) {
    if (error.code() != Errc::device_memory && error.code() != Errc::out_of_memory) throw;
    throw Error(error.code(), fmt::format("{}; {}", error.what(), who_holds_what(place)),
                "release what is no longer used, here or in the processes named, or use smaller blocks");
  }
}

Block MemoryState::open(Lease lease) {
  require(lease.is_open(), "a lease that claims nothing was to be opened", "open one that came with a message");
  const MutexLock lock(mutex_);
  auto slab = mapped(lease);
  return claim(std::move(lease), std::move(slab));
}

std::shared_ptr<MappedSlab> MemoryState::mapped(const Lease& lease) {
  const ObjectHandle& handle = lease.slab();
  for (const auto& [place, slabs] : own_) {
    for (const auto& slab : slabs) {
      if (slab->book().object().handle() == handle) return slab;
    }
  }
  if (const auto known = received_.find(handle.generation); known != received_.end()) return known->second;
  drop_idle(1);
  auto slab = MappedSlab::open(SlabBook::open(membership_, handle));
  received_.emplace(handle.generation, slab);
  return slab;
}

Block MemoryState::claim(Lease lease, std::shared_ptr<MappedSlab> slab) {
  claimed_[slab->place()] += lease.bytes();
  Block block;
  block.lease_ = std::move(lease);
  block.slab_ = std::move(slab);
  block.state_ = shared_from_this();
  return block;
}

void MemoryState::claim_ended(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept {
  if (membership_->self() == kNobody) return;
  const MutexLock lock(mutex_);
  claimed_[slab->place()] -= bytes;
  if (slab->is_empty()) drop_if_idle(slab);
}

// Of its own one stays for the next block. Another's stays mapped while its maker may put more into it.
void MemoryState::drop_if_idle(const std::shared_ptr<MappedSlab>& slab) noexcept {
  if (!slab->is_own()) {
    if (slab->is_alone()) received_.erase(slab->book().object().handle().generation);
    return;
  }
  Slabs& slabs = own_[slab->place()];
  if (slabs.size() > 1) std::erase(slabs, slab);
}

void MemoryState::drop_idle(std::size_t kept_of_each_place) noexcept {
  for (auto& [place, slabs] : own_) {
    std::size_t kept = 0;
    std::erase_if(slabs, [&](const auto& slab) { return slab->is_empty() && ++kept > kept_of_each_place; });
  }
  std::erase_if(received_, [](const auto& entry) { return entry.second->is_empty() && entry.second->is_alone(); });
}

void MemoryState::trim() {
  const MutexLock lock(mutex_);
  drop_idle(0);
  std::erase_if(received_, [](const auto& entry) { return entry.second->is_empty(); });
}

std::uint64_t MemoryState::claimed(const Place& place) const {
  const MutexLock lock(mutex_);
  const auto at = claimed_.find(place);
  return at == claimed_.end() ? 0 : at->second;
}

std::vector<SlabUsage> MemoryState::usage() const {
  const MutexLock lock(mutex_);
  return usage_of_all();
}

std::vector<SlabUsage> MemoryState::usage_of_all() const {
  std::vector<SlabUsage> all;
  for (const auto& [place, slabs] : own_) {
    for (const auto& slab : slabs) all.push_back(usage_of(*slab, *membership_));
  }
  for (const auto& [generation, slab] : received_) all.push_back(usage_of(*slab, *membership_));
  return all;
}

std::string MemoryState::who_holds_what(const Place& place) const {
  std::map<std::string, std::uint64_t> holders;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  for (const SlabUsage& slab : usage_of_all()) {
    if (slab.place != place) continue;
    bytes += slab.bytes;
    free_bytes += slab.free_bytes;
    for (const auto& holder : slab.holders) holders[holder.name] += holder.bytes;
  }
  std::string text = fmt::format("slabs mapped here at {} have {}, of which {} are free in pieces too small",
                                 to_string(place), format_bytes(bytes), format_bytes(free_bytes));
  for (const auto& [name, held] : holders) text += fmt::format("; {} has {}", name, format_bytes(held));
  return text;
}

}  // namespace drover
