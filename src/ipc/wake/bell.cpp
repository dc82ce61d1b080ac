#include "ipc/wake/bell.hpp"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "ipc/wake/futex.hpp"

namespace drover::ipc {
namespace {

constexpr int kFewestPauses = 16;
constexpr int kMostPauses = 1024;
constexpr int kFewCores = 4;  // machines with up to this many cores have none to spare
// A wait that slept and ended within this time would have ended without the sleep: kMostPauses take as long.
constexpr std::chrono::microseconds kWorthSpinning{40};

// CPU quota in whole cores (cgroup cpu.max), as containers have it; nullopt if unlimited.
std::optional<int> quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double used = 0;
  double period = 0;
  if (!(file >> used >> period) || period <= 0) return std::nullopt;  // such as "max"
  return static_cast<int>(used / period);
}

int cores() noexcept {
  static const int count = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int all = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return std::clamp(quota().value_or(all), 1, all);
  }();
  return count;
}

bool may_spin_long() noexcept {
  const char* const setting = std::getenv("DROVER_LONG_LOOKS");
  return setting == nullptr || std::string_view(setting) != "0";
}

}  // namespace

void sleep_on(Bell& bell, std::uint32_t announced, std::chrono::nanoseconds longest) noexcept {
  futex_sleep(bell.word, announced, longest);
}

// Keeps the bit while sleepers may remain. If nobody was asleep the bit is cleared, and whoever fell asleep in
// between is woken (rule 4).
void impl::wake_one(Bell& bell) noexcept {
  std::uint32_t rung = bell.word.fetch_add(2) + 2;
  if (futex_wake(bell.word, 1) > 0) return;
  if (bell.word.compare_exchange_strong(rung, rung & ~1U)) futex_wake(bell.word, INT_MAX);
}

// The exchange fails because of another ring, which wakes somebody, or of a sleeper, which checks after announcing
// itself.
void impl::wake_in_turn(Bell& bell, std::uint32_t seen) noexcept {
  while ((seen & 1U) != 0) {
    if (!bell.word.compare_exchange_weak(seen, (seen + 2) & ~1U)) continue;
    futex_wake(bell.word, 1);
    return;
  }
}

void impl::wake_all(Bell& bell, std::uint32_t seen) noexcept {
  if (bell.word.compare_exchange_strong(seen, (seen + 2) & ~1U)) {
    futex_wake(bell.word, INT_MAX);
  } else {
    wake_always(bell);
  }
}

void wake_always(Bell& bell) noexcept {
  bell.word.fetch_add(2);
  futex_wake(bell.word, INT_MAX);
}

bool has_cores_to_spare() noexcept {
  static const bool has = cores() > kFewCores && may_spin_long();
  return has;
}

int Patience::first_pauses() noexcept { return cores() > 1 ? kMostPauses / 2 : 0; }

void Patience::helped() noexcept { pauses_.store(std::min(pauses() * 2, kMostPauses), std::memory_order_relaxed); }

void Patience::failed() noexcept {
  if (pauses() > 0) pauses_.store(std::max(pauses() / 2, kFewestPauses), std::memory_order_relaxed);
  short_sleeps_.store(is_long() ? kAfterFailure : std::min(short_sleeps_.load(std::memory_order_relaxed), 0),
                      std::memory_order_relaxed);
}

// A waiter that spun for as long as it may and still slept shares its core with the participant it waits for.
void Patience::slept(std::chrono::nanoseconds waited) noexcept {
  const int short_sleeps = short_sleeps_.load(std::memory_order_relaxed);
  const bool is_worth_it = waited < kWorthSpinning && pauses() > 0;
  if (is_worth_it && short_sleeps >= 0 && pauses() < kMostPauses) return helped();
  if (waited < kLongestSpin && (may_spin_long_ || short_sleeps < 0)) {
    short_sleeps_.store(std::min(short_sleeps + 1, kEnough), std::memory_order_relaxed);
  } else if (is_worth_it) {
    pauses_.store(kFewestPauses, std::memory_order_relaxed);
    short_sleeps_.store(kAfterFailure, std::memory_order_relaxed);
  } else {
    failed();
  }
}

}  // namespace drover::ipc
