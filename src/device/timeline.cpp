#include "drover/device/timeline.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <ctime>
#include <thread>

#include "base/activity.hpp"
#include "base/config.hpp"
#include "device/timelines.hpp"

namespace drover {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Most values arrive within microseconds: if there are spare cores, a waiter spins for a while before it sleeps.
constexpr nanoseconds kSpinTime = microseconds(50);

void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool comes_soon(const TimelineWord& word, std::uint64_t value, Deadline deadline) {
  static const bool has_spare_cores = std::thread::hardware_concurrency() > 2;
  if (!has_spare_cores) return false;
  const auto give_up = std::min(Clock::now() + kSpinTime, deadline.moment());
  do {
    for (int look = 0; look < 64; ++look) {
      if (has_reached(word.load(std::memory_order_acquire), value)) return true;
      pause_briefly();
    }
  } while (Clock::now() < give_up);
  return false;
}

// A store by a device wakes no futex, so sleeps are bounded. They start short, for latency, and grow.
constexpr nanoseconds kFirstSleep = microseconds(20);
constexpr nanoseconds kLongestSleep = microseconds(1000);

// A futex has 32 bits: the half of the word that changes with every small step.
const std::uint32_t* low_half(const TimelineWord& word) noexcept {
  static_assert(std::endian::native == std::endian::little);
  return reinterpret_cast<const std::uint32_t*>(&word);
}

void sleep_while_equal(const TimelineWord& word, std::uint64_t seen, nanoseconds longest) noexcept {
  const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(longest.count())};
  ::syscall(SYS_futex, low_half(word), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &time, nullptr, 0);
}

}  // namespace

bool device::timelines_allowed() { return environment_number("DROVER_TIMELINES", 1, 0, 1) == 1; }

void timeline_store(TimelineWord& word, std::uint64_t value) noexcept {
  word.store(value, std::memory_order_release);
  ::syscall(SYS_futex, low_half(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

WaitResult timeline_wait(const TimelineWord& word, std::uint64_t value, Deadline deadline) {
  if (comes_soon(word, value, deadline)) return WaitResult::done;
  const ActivityMark mark("timeline.wait");
  nanoseconds sleep = kFirstSleep;
  for (;;) {
    const std::uint64_t seen = word.load(std::memory_order_acquire);
    if (has_reached(seen, value)) return WaitResult::done;
    if (deadline.has_passed()) return WaitResult::timed_out;
    sleep_while_equal(word, seen, std::min(sleep, deadline.remaining()));
    sleep = std::min(sleep * 2, kLongestSleep);
  }
}

}  // namespace drover
