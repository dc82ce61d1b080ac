// drover/device/timeline.hpp: the 64-bit words that order work between streams, processes and CPUs.
#pragma once

#include <atomic>
#include <cstdint>

#include "drover/base/clock.hpp"

namespace drover {

/// A counter in shared host memory that only grows. Streams write it (Stream::signal) and wait on it
/// (Stream::wait); any process that maps the memory may read or advance it. Lies in memory registered with
/// the device that uses it.
using TimelineWord = std::atomic<std::uint64_t>;
static_assert(TimelineWord::is_always_lock_free && sizeof(TimelineWord) == 8);

/// Stored in a word to free all its waiters after the producer's death. All real values stay below it.
/// Its top bit is clear on purpose: devices compare cyclically, and a value 2^63 or more above the awaited
/// one counts as smaller, so a poison with the top bit set would hang its waiters for ever.
inline constexpr std::uint64_t kTimelinePoison = 0x4000'0000'0000'0000;

/// Whether `word` has reached `value`, compared cyclically as devices do.
[[nodiscard]] inline bool has_reached(std::uint64_t word, std::uint64_t value) noexcept {
  return static_cast<std::int64_t>(word - value) >= 0;
}

/// Stores `value` from the CPU and wakes CPU threads and emulated streams that wait for it.
void timeline_store(TimelineWord& word, std::uint64_t value) noexcept;

/// Blocks this thread until the word has reached `value`. Sees stores by anyone, a device included.
WaitResult timeline_wait(const TimelineWord& word, std::uint64_t value, Deadline deadline);

}  // namespace drover
