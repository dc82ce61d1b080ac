// Slabs of a MemoryState without blocks, which are kept a little while for the next ones.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "base/config.hpp"
#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "tensor/memory/host_shortage.hpp"
#include "tensor/memory/memory_state.hpp"

namespace drover {
namespace {

constexpr std::uint64_t kMostIdle = kGiB;
constexpr std::uint64_t kShareOfMachine = 16;
constexpr const char* kVariable = "DROVER_IDLE_MEMORY";
// What is open by a handle keeps memory of another process from being freed, so it is not kept long, nor much of it:
// to open and close it takes 80 to 480 us.
constexpr int kShareOfTime = 40;
constexpr std::uint64_t kShareOfDevice = 64;

std::uint64_t default_idle_bytes() {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  const std::uint64_t machine = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(kMostIdle, std::min(machine, container_memory().value_or(machine)) / kShareOfMachine);
}

std::uint64_t share_of_device(const Place& place) {
  if (!place.is_device) return std::numeric_limits<std::uint64_t>::max();
  const auto& devices = backend_of(place.backend).devices();
  const auto index = static_cast<std::size_t>(place.index);
  return index < devices.size() ? devices[index].memory_total / kShareOfDevice : 0;
}

}  // namespace

std::uint64_t MemoryState::idle_bytes_of(const MemoryOptions& options) {
  if (options.idle_bytes) return *options.idle_bytes;
  return environment(kVariable) == "0" ? 0 : environment_bytes(kVariable, default_idle_bytes());
}

bool MemoryState::is_kept_when_idle(const Place& place) const noexcept { return !place.is_device && idle_bytes_ > 0; }

// Large blocks that come again and again differ a little in size, and pages that nobody touches cost nothing.
std::uint64_t MemoryState::size_for_one(const Place& place, std::uint64_t bytes) const noexcept {
  if (!is_kept_when_idle(place)) return bytes;
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(bytes) / 8, 1);
  return std::min((bytes + step - 1) / step * step, kMaxSlabBytes);
}

// Where slabs are kept, small blocks stay out of those for large ones, which would not be empty for long times, and
// large ones take no slab that is far too large.
bool MemoryState::is_for(const MappedSlab& slab, const Place& place, std::uint64_t bytes) const noexcept {
  if (!slab.is_own() || slab.place() != place) return false;
  if (!is_kept_when_idle(place) || !slab.is_for_one()) return true;
  return bytes > options_.slab_bytes / 2 && slab.bytes() / 2 <= bytes;
}

// Whether it is of no use to this process now, and better given back some time after it is empty.
bool MemoryState::may_become_idle(const Known& known) const {
  const MappedSlab& slab = *known.slab;
  if (known.claims > 0 || known.imported) return false;
  if (slab.is_by_handle()) return idle_bytes_ > 0;
  if (slab.place().is_device) return false;
  // Others', unless more will come in them. Also where nothing is kept: their makers may have something there yet.
  if (!slab.is_own()) return slab.bytes() != options_.slab_bytes;
  if (!is_kept_when_idle(slab.place())) return false;
  return slab.is_for_one() || has_other_common(slab);
}

bool MemoryState::has_other_common(const MappedSlab& slab) const {
  return std::ranges::any_of(slabs_, [&](const auto& other) {
    const MappedSlab& its = *other.second.slab;
    return &its != &slab && its.is_own() && its.place() == slab.place() && !its.is_for_one();
  });
}

// What may be kept without exceeding the budget, if `more` is claimed.
std::uint64_t MemoryState::idle_room(const Place& place, std::uint64_t more) const {
  const std::uint64_t most = std::min(idle_bytes_, share_of_device(place));
  const auto budget = options_.budgets.find(place);
  if (budget == options_.budgets.end()) return most;
  const auto claimed = claimed_.find(place);
  const std::uint64_t used = more + (claimed == claimed_.end() ? 0 : claimed->second);
  return std::min(most, budget->second - std::min(budget->second, used));
}

std::chrono::milliseconds MemoryState::idle_time_of(const MappedSlab& slab) const noexcept {
  return slab.is_by_handle() ? options_.idle_time / kShareOfTime : options_.idle_time;
}

// A slab that nobody but this process has open is another's that let go of it: its memory goes with our mapping.
bool MemoryState::keep_idle(Known& known) {
  if (known.slab->bytes() > idle_room(known.slab->place())) return false;
  if (!known.slab->is_own() && known.slab->is_alone()) return false;
  known.idle_since = Clock::now();
  return true;
}

// Those that are idle for the longest time, until the rest is small enough.
std::vector<MemoryState::Known> MemoryState::take_idle_above(const Place& place, std::uint64_t most) {
  std::vector<const Known*> idle;
  std::uint64_t bytes = 0;
  for (const auto& [generation, known] : slabs_) {
    if (known.idle_since == Clock::time_point() || known.slab->place() != place) continue;
    idle.push_back(&known);
    bytes += known.slab->bytes();
  }
  std::ranges::sort(idle, {}, &Known::idle_since);
  std::vector<const Known*> surplus;
  for (const Known* const known : idle) {
    if (bytes <= most) break;
    bytes -= known->slab->bytes();
    surplus.push_back(known);
  }
  if (surplus.empty()) return {};
  works_.bury_without_keeper();
  return take_if([&](const Known& known) { return std::ranges::count(surplus, &known) > 0; });
}

// Also finds those that became empty by others, after the last block of this process in them had ended. Returns
// whether there will be more to do. Nothing here, nor below, may end a keeper of another library, which may want a
// lock that whoever waits for this thread has.
bool MemoryState::look_after_idle(bool is_by_handle) noexcept {
  const bool is_short = !is_by_handle && is_host_short_of_memory();
  std::vector<Known> dropped;
  const MutexLock lock(mutex_);
  const auto now = Clock::now();
  const auto is_mine = [&](const Known& known) DROVER_NO_THREAD_ANALYSIS {  // with the mutex held, likewise below
    return known.slab->is_by_handle() == is_by_handle && may_become_idle(known);
  };
  for (auto& [generation, known] : slabs_) {
    if (!is_mine(known)) continue;
    if (!is_idle(known)) {
      known.idle_since = {};
    } else if (known.idle_since == Clock::time_point()) {
      known.idle_since = now;
    }
  }
  dropped = take_if([&](const Known& known) DROVER_NO_THREAD_ANALYSIS {
    if (known.idle_since == Clock::time_point() || !is_mine(known) || !is_idle(known)) return false;
    const bool is_left = !known.slab->is_own() && known.slab->is_alone();
    return is_short || is_left || now - known.idle_since >= idle_time_of(*known.slab);
  });
  if (!dropped.empty()) works_.bury_without_keeper();
  return std::ranges::any_of(slabs_, [&](const auto& each) { return is_mine(each.second); });
}

// Memory of others, who may wait for it; one's own is looked after when it is needed. Returns as the one above.
bool MemoryState::look_after_retired() noexcept {
  return works_.release_ended_of_others([this](RetiredBlock& block) {
    const std::uint64_t bytes = block.lease.bytes();
    block.lease.release();
    if (end_claim(block.slab, bytes) && !block.slab->is_by_handle()) later_.begin();
  });
}

}  // namespace drover
