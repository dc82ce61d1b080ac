// drover/device/timeline.hpp: 64-bit counters that order work between streams, processes and CPUs.
#pragma once

#include <atomic>
#include <cstdint>

#include "drover/base/clock.hpp"

namespace drover {

/// A counter in shared host memory that only grows. Streams write it (Stream::signal) and wait for it (Stream::wait);
/// any process that maps the memory may read or advance it. Devices can use registered memory only.
using TimelineWord = std::atomic<std::uint64_t>;
static_assert(TimelineWord::is_always_lock_free && sizeof(TimelineWord) == 8);

/// Stored in a word to release all its waiters after the producer has died. All real values stay below it. Its top
/// bit is clear on purpose: devices compare cyclically, so that a value 2^63 or more above the awaited one counts as
/// smaller, and a poison with the top bit set would never release its waiters.
inline constexpr std::uint64_t kTimelinePoison = 0x4000'0000'0000'0000;

/// Whether `word` has reached `value`; compares cyclically, as devices do.
[[nodiscard]] inline bool has_reached(std::uint64_t word, std::uint64_t value) noexcept {
  return static_cast<std::int64_t>(word - value) >= 0;
}

/// Stores `value` from the CPU, and wakes CPU threads and emulated streams that wait for it.
void timeline_store(TimelineWord& word, std::uint64_t value) noexcept;

/// Blocks the calling thread until the word has reached `value`. Sees stores by any process or device; those of a
/// device wake nobody, so it also polls, at least every millisecond.
WaitResult timeline_wait(const TimelineWord& word, std::uint64_t value, Deadline deadline);

}  // namespace drover
