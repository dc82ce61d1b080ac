// ipc/timeline/timeline_layout.hpp: the timelines of a session in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ipc/object/object_kind.hpp"
#include "ipc/object/object_layout.hpp"

namespace drover::ipc {

/// Number of timelines in a session: one for each stream, of any process, that stores its own progress.
inline constexpr std::uint32_t kTimelines = 1024;

/// The values of a timeline count the work submitted to its stream. The bits above the count are the epoch, which
/// increases when an owner dies with unfinished work: the word then jumps over all values that will never be stored,
/// and waits for them end.
inline constexpr unsigned kEpochShift = 44;
inline constexpr std::uint64_t kMostEpochs = std::uint64_t{1} << 17U;  // far from where devices would compare wrongly
constexpr std::uint64_t epoch_of(std::uint64_t value) noexcept { return value >> kEpochShift; }
constexpr std::uint64_t start_of_epoch(std::uint64_t epoch) noexcept { return epoch << kEpochShift; }

/// One timeline.
///
/// 1. A free timeline has `owner` 0, and `word` has reached `submitted`. A participant takes it by storing its number
///    by compare-and-swap, and continues the count.
/// 2. Only the owner's stream stores in `word`. The owner stores in `submitted` the value that its stream will store:
///    after the work is submitted to the stream, and before any other process learns the value.
/// 3. When the owner is dead, nothing stores in `word` any more. If it has not reached `submitted`, the keeper stores
///    the value reached in `last_good`, and then the next epoch in `word`. Afterwards the timeline is free.
struct alignas(kCacheLine) TimelineSlot {
  std::atomic<std::uint64_t> word;       ///< work that is done; written by devices too
  std::atomic<std::uint64_t> submitted;  ///< work that was submitted
  std::atomic<std::uint64_t> last_good;  ///< the last value reached in the previous epoch
  std::atomic<std::uint32_t> owner;      ///< a participant, or 0
};
static_assert(sizeof(TimelineSlot) == kCacheLine);

/// All timelines. Large enough to have a memory file of its own, since devices register whole pages of it.
struct TimelineLayout {
  std::array<TimelineSlot, kTimelines> slots;
};
static_assert(std::is_standard_layout_v<TimelineLayout>);

/// Marks all submitted work that is not done as lost. Requires: nothing stores in `word` any more.
void lose_rest(TimelineSlot& slot) noexcept;
/// Frees a timeline whose owner is dead or no longer needs it.
void end_ownership(TimelineSlot& slot) noexcept;

}  // namespace drover::ipc
