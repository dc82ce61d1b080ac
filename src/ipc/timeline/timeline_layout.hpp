// ipc/timeline/timeline_layout.hpp: the timelines of a session in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ipc/object/object_kind.hpp"
#include "ipc/object/object_layout.hpp"

namespace drover {

/// How many timelines a session has: one for each stream, of all processes, that says by itself what it has done.
inline constexpr std::uint32_t kTimelines = 1024;

/// Values of a timeline count what its stream was told to do. Above the count is the epoch, which grows when an owner
/// died with work undone: so the word jumps over all values that nobody will ever store, and whoever waits goes on.
inline constexpr unsigned kEpochShift = 44;
inline constexpr std::uint64_t kMostEpochs = std::uint64_t{1} << 17U;  // far from where devices would compare wrongly
constexpr std::uint64_t epoch_of(std::uint64_t value) noexcept { return value >> kEpochShift; }
constexpr std::uint64_t start_of_epoch(std::uint64_t epoch) noexcept { return epoch << kEpochShift; }

/// One timeline.
///
/// 1. A free one has `owner` 0, and `word` has reached `submitted`. Who takes it stores its number by
///    compare-and-swap, and counts on from there.
/// 2. The owner's stream alone stores in `word`; the owner stores in `submitted` what its stream will store, after
/// the
///    stream was told and before anybody else hears of the value.
/// 3. When the owner is dead, nothing stores in `word` any more. If it has not reached `submitted`, the keeper stores
///    in `last_good` how far it came, and then the next epoch in `word`. The timeline is free afterwards.
struct alignas(kCacheLine) TimelineSlot {
  std::atomic<std::uint64_t> word;       ///< what the stream has done; written by devices too
  std::atomic<std::uint64_t> submitted;  ///< what it was told to do
  std::atomic<std::uint64_t> last_good;  ///< the last value that was reached in the epoch before this one
  std::atomic<std::uint32_t> owner;      ///< a participant, or 0
};
static_assert(sizeof(TimelineSlot) == kCacheLine);

/// All of them. Larger than what shares a memory file with others: devices must know whole pages of it.
struct TimelineLayout {
  std::array<TimelineSlot, kTimelines> slots;
};
static_assert(std::is_standard_layout_v<TimelineLayout>);

extern const ObjectKindInfo timelines_kind;

/// Makes everything lost that was submitted and is not reached. Requires: nothing stores in `word` any more.
void lose_rest(TimelineSlot& slot) noexcept;
/// Frees a timeline whose owner is dead, or has no more use for it.
void end_ownership(TimelineSlot& slot) noexcept;

}  // namespace drover
