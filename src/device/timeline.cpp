#include "drover/device/timeline.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <ctime>

namespace drover {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// A device's store rings no futex, so sleeps are bounded. They begin short, for latency, and grow.
constexpr nanoseconds kFirstSleep = microseconds(20);
constexpr nanoseconds kLongestSleep = microseconds(1000);

// Futexes have 32 bits: the half of the word that changes with every small step.
const std::uint32_t* low_half(const TimelineWord& word) noexcept {
  static_assert(std::endian::native == std::endian::little);
  return reinterpret_cast<const std::uint32_t*>(&word);
}

void sleep_while_equal(const TimelineWord& word, std::uint64_t seen, nanoseconds longest) noexcept {
  const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(longest.count())};
  ::syscall(SYS_futex, low_half(word), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &time, nullptr, 0);
}

}  // namespace

void timeline_store(TimelineWord& word, std::uint64_t value) noexcept {
  word.store(value, std::memory_order_release);
  ::syscall(SYS_futex, low_half(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

WaitResult timeline_wait(const TimelineWord& word, std::uint64_t value, Deadline deadline) {
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
