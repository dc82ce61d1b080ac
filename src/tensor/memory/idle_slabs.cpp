#include "tensor/memory/idle_slabs.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/config.hpp"
#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "tensor/memory/host_shortage.hpp"

namespace drover::tensor {
namespace {

constexpr std::uint64_t kMostIdle = kGiB;
constexpr std::uint64_t kShareOfMachine = 16;
constexpr const char* kVariable = "DROVER_IDLE_MEMORY";
// Other libraries compete for the memory of a device, so idle slabs there are kept for a fraction of the time and of
// the device. To make, share and map one takes 1 to 2 ms.
constexpr int kShareOfTime = 4;
constexpr std::uint64_t kShareOfDevice = 64;

std::uint64_t default_idle_bytes() {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  const std::uint64_t machine = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(kMostIdle, std::min(machine, container_memory().value_or(machine)) / kShareOfMachine);
}

std::uint64_t idle_bytes_of(const MemoryOptions& options) {
  if (options.idle_bytes) return *options.idle_bytes;
  return environment(kVariable) == "0" ? 0 : environment_bytes(kVariable, default_idle_bytes());
}

std::uint64_t share_of_device(const Place& place) {
  if (!place.is_device) return std::numeric_limits<std::uint64_t>::max();
  const auto& devices = backend_of(place.backend).devices();
  const auto index = static_cast<std::size_t>(place.index);
  return index < devices.size() ? devices[index].memory_total / kShareOfDevice : 0;
}

}  // namespace

IdleSlabs::IdleSlabs(const MemoryOptions& options) : options_(options), idle_bytes_(idle_bytes_of(options)) {}

// Rounds up, so that the next block of a slightly different size fits too; pages of the host that are never touched
// cost nothing.
std::uint64_t IdleSlabs::size_for_one(const Place& place, std::uint64_t bytes) const noexcept {
  if (!keeps() || place.is_device) return bytes;
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(bytes) / 8, 1);
  return std::min((bytes + step - 1) / step * step, ipc::kMaxSlabBytes);
}

// Where slabs are kept, small blocks stay out of slabs for large ones, which they would keep from becoming empty, and
// large blocks avoid slabs that are far too large.
bool IdleSlabs::is_for(const MappedSlab& slab, const Place& place, std::uint64_t bytes) const noexcept {
  if (!slab.is_own() || slab.place() != place) return false;
  if (!keeps() || !slab.is_for_one()) return true;
  return bytes > options_.slab_bytes / 2 && slab.bytes() / 2 <= bytes;
}

// An own slab is not idle if it is the last at its place, which stays for the next block. Another process's slab is
// not idle while that process uses it anyway, or if it has the common size, in which more will arrive; it is idle if
// all others have closed it, or if another library may want to free it.
bool IdleSlabs::is_idle(const SlabTable& table, const SlabEntry& entry) const {
  const MappedSlab& slab = *entry.slab;
  if (entry.claims > 0) return false;
  if (entry.imported) return entry.is_import_unused();
  if (slab.is_by_handle()) return true;
  if (!slab.is_own()) return slab.is_alone() || (slab.is_empty() && slab.bytes() > options_.slab_bytes);
  if (!slab.is_empty()) return false;
  if (keeps()) return slab.is_for_one() || has_other_common(table, slab);
  return std::ranges::any_of(table.entries, [&](const auto& each) {
    const MappedSlab& other = *each.second.slab;
    return &other != &slab && other.is_own() && other.place() == slab.place();
  });
}

bool IdleSlabs::may_become_idle(const SlabTable& table, const SlabEntry& entry) const {
  const MappedSlab& slab = *entry.slab;
  if (entry.claims > 0 || entry.imported) return false;
  if (slab.is_by_handle()) return false;
  // Also where nothing is kept, since its owner may still use it. Slabs of the common size stay for later blocks.
  if (!slab.is_own()) return slab.bytes() != options_.slab_bytes;
  return keeps() && (slab.is_for_one() || has_other_common(table, slab));
}

bool IdleSlabs::has_other_common(const SlabTable& table, const MappedSlab& slab) {
  return std::ranges::any_of(table.entries, [&](const auto& each) {
    const MappedSlab& other = *each.second.slab;
    return &other != &slab && other.is_own() && other.place() == slab.place() && !other.is_for_one();
  });
}

// Idle slabs must not make claims exceed the budget.
std::uint64_t IdleSlabs::room(const SlabTable& table, const Place& place, std::uint64_t more) const {
  const std::uint64_t most = std::min(idle_bytes_, share_of_device(place));
  const auto budget = options_.budgets.find(place);
  if (budget == options_.budgets.end()) return most;
  return std::min(most, budget->second - std::min(budget->second, table.claimed_at(place) + more));
}

std::chrono::nanoseconds IdleSlabs::time_of(const MappedSlab& slab) const noexcept {
  return slab.place().is_device ? options_.idle_time / kShareOfTime : std::chrono::nanoseconds(options_.idle_time);
}

// If all others have closed another process's slab, its memory is freed when this process unmaps it.
bool IdleSlabs::keep(const SlabTable& table, SlabEntry& entry) const {
  if (entry.slab->bytes() > room(table, entry.slab->place(), 0)) return false;
  if (!entry.slab->is_own() && entry.slab->is_alone()) return false;
  entry.idle_since = Clock::now();
  return true;
}

std::vector<SlabEntry> IdleSlabs::take_surplus(SlabTable& table, const Place& place, std::uint64_t more) const {
  const std::uint64_t most = room(table, place, more);
  std::vector<const SlabEntry*> idle;
  std::uint64_t bytes = 0;
  for (const auto& [generation, entry] : table.entries) {
    if (entry.idle_since == Clock::time_point() || entry.slab->place() != place) continue;
    idle.push_back(&entry);
    bytes += entry.slab->bytes();
  }
  std::ranges::sort(idle, {}, &SlabEntry::idle_since);
  std::vector<const SlabEntry*> surplus;
  for (const SlabEntry* const entry : idle) {
    if (bytes <= most) break;
    bytes -= entry->slab->bytes();
    surplus.push_back(entry);
  }
  if (surplus.empty()) return {};
  return table.take_if([&](const SlabEntry& entry) { return std::ranges::count(surplus, &entry) > 0; });
}

// Also finds slabs that other processes emptied after this one had released its last block there.
IdleSlabs::Expired IdleSlabs::take_expired(SlabTable& table, bool is_host_short) const {
  const auto now = Clock::now();
  const auto is_candidate = [&](const SlabEntry& entry) DROVER_NO_THREAD_ANALYSIS {  // under the mutex, as below
    return may_become_idle(table, entry);
  };
  for (auto& [generation, entry] : table.entries) {
    if (!is_candidate(entry)) continue;
    if (!is_idle(table, entry)) {
      entry.idle_since = {};
    } else if (entry.idle_since == Clock::time_point()) {
      entry.idle_since = now;
    }
  }
  auto expired = table.take_if([&](const SlabEntry& entry) DROVER_NO_THREAD_ANALYSIS {
    if (entry.idle_since == Clock::time_point() || !is_candidate(entry) || !is_idle(table, entry)) return false;
    const bool is_abandoned = !entry.slab->is_own() && entry.slab->is_alone();
    const bool is_short = is_host_short && !entry.slab->place().is_device;
    return is_short || is_abandoned || now - entry.idle_since >= time_of(*entry.slab);
  });
  const bool has_more =
      std::ranges::any_of(table.entries, [&](const auto& each) { return is_candidate(each.second); });
  return {.slabs = std::move(expired), .has_more = has_more};
}

}  // namespace drover::tensor
