#include "ipc/wake/bell.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <string_view>

namespace drover {
namespace {

constexpr int kFewestPauses = 16;
constexpr int kMostPauses = 1024;
constexpr int kFewCores = 4;  // so many are not spared
// A wait that slept and was over after this would have been over before without the sleep: most pauses take as long.
constexpr std::chrono::microseconds kWorthLooking{40};

long futex(Bell& bell, int operation, std::uint32_t value, const timespec* time) noexcept {
  return ::syscall(SYS_futex, &bell.word, operation, value, time, nullptr, 0);
}

// Of which this process may use so much time as of whole cores: what containers are given. Nothing if all.
std::optional<int> quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double used = 0;
  double period = 0;
  if (!(file >> used >> period) || period <= 0) return std::nullopt;  // "max" among others
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

bool may_look_long() noexcept {
  const char* const told = std::getenv("DROVER_LONG_LOOKS");
  return told == nullptr || std::string_view(told) != "0";
}

}  // namespace

void sleep_on(Bell& bell, std::uint32_t announced, std::chrono::nanoseconds longest) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (longest - seconds).count()};
  futex(bell, FUTEX_WAIT, announced, &time);
}

// Keeps the bit while sleepers may remain. When the wake-up found nobody the bit goes, and whoever fell asleep in
// between is woken with it (invariant 4).
void detail::wake_one(Bell& bell) noexcept {
  std::uint32_t rung = bell.word.fetch_add(2) + 2;
  if (futex(bell, FUTEX_WAKE, 1, nullptr) > 0) return;
  if (bell.word.compare_exchange_strong(rung, rung & ~1U)) futex(bell, FUTEX_WAKE, INT_MAX, nullptr);
}

// Who fails has met another ring, which wakes somebody, or a sleeper that announces itself and then looks.
void detail::wake_in_turn(Bell& bell, std::uint32_t seen) noexcept {
  while ((seen & 1U) != 0) {
    if (!bell.word.compare_exchange_weak(seen, (seen + 2) & ~1U)) continue;
    futex(bell, FUTEX_WAKE, 1, nullptr);
    return;
  }
}

void detail::wake_all(Bell& bell, std::uint32_t seen) noexcept {
  if (bell.word.compare_exchange_strong(seen, (seen + 2) & ~1U)) {
    futex(bell, FUTEX_WAKE, INT_MAX, nullptr);
  } else {
    ring_always(bell);
  }
}

void ring_always(Bell& bell) noexcept {
  bell.word.fetch_add(2);
  futex(bell, FUTEX_WAKE, INT_MAX, nullptr);
}

bool has_cores_to_spare() noexcept {
  static const bool has = cores() > kFewCores && may_look_long();
  return has;
}

int Patience::first_pauses() noexcept { return cores() > 1 ? kMostPauses / 2 : 0; }

void Patience::helped() noexcept { pauses_.store(std::min(pauses() * 2, kMostPauses), std::memory_order_relaxed); }

void Patience::failed() noexcept {
  if (pauses() > 0) pauses_.store(std::max(pauses() / 2, kFewestPauses), std::memory_order_relaxed);
  short_sleeps_.store(is_long() ? kAfterFailure : std::min(short_sleeps_.load(std::memory_order_relaxed), 0),
                      std::memory_order_relaxed);
}

// Who looked as long as it may and slept all the same shares its core with whom it waits for, who cannot go on
// before.
void Patience::slept(std::chrono::nanoseconds waited) noexcept {
  const int short_sleeps = short_sleeps_.load(std::memory_order_relaxed);
  const bool is_worth_it = waited < kWorthLooking && pauses() > 0;
  if (is_worth_it && short_sleeps >= 0 && pauses() < kMostPauses) return helped();
  if (waited < kLongestLook && (may_look_long_ || short_sleeps < 0)) {
    short_sleeps_.store(std::min(short_sleeps + 1, kEnough), std::memory_order_relaxed);
  } else if (is_worth_it) {
    pauses_.store(kFewestPauses, std::memory_order_relaxed);
    short_sleeps_.store(kAfterFailure, std::memory_order_relaxed);
  } else {
    failed();
  }
}

}  // namespace drover
