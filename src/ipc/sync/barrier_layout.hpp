// ipc/sync/barrier_layout.hpp: what a Barrier is in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {

/// The state is one word, changed by compare-and-swap only, so no death leaves it half changed.
///
/// 1. A round ends when the last party comes, or by a reset; then its number goes up, nobody has arrived, and the
///    outcome of the round is shifted into the history. A reset is counted too. A waiter learns by its round's number
///    and bit what became of it, even if later rounds ended meanwhile; of a round too long ago for that, by the
///    resets since it came.
/// 2. A broken round stays until a reset ends it.
/// 3. A participant sets its bit in `members` when it opens the barrier and clears it when it closes it. Whoever dies
///    with the bit set breaks the barrier.
struct BarrierLayout {
  std::atomic<std::uint64_t> word;
  std::array<std::atomic<std::uint64_t>, (kMaxParticipants + 64) / 64> members;
  Bell bell;
};
static_assert(std::is_standard_layout_v<BarrierLayout>);

/// The word, taken apart.
struct BarrierWord {
  static constexpr std::uint32_t kHistory = 12;  ///< rounds whose outcome is kept
  static constexpr std::uint32_t kRoundMask = 0x7FF'FFFF;
  static constexpr std::uint16_t kHistoryMask = 0xFFF;

  bool is_broken = false;
  std::uint16_t arrived = 0;
  std::uint32_t round = 0;    ///< 27 bits, then from 0
  std::uint8_t resets = 0;    ///< rounds that were not passed; then from 0
  std::uint16_t history = 0;  ///< bit 0: whether the last round was passed; bit 1: the one before; and so on

  [[nodiscard]] std::uint64_t pack() const;
  [[nodiscard]] static BarrierWord unpack(std::uint64_t word);
  /// The word of the next round.
  [[nodiscard]] BarrierWord next(bool is_passed) const;
  /// Whether the round of `arrival`, the word as it was in a round before this one, was passed. Of a round too long
  /// ago that is said only if none was reset since.
  [[nodiscard]] bool was_passed(const BarrierWord& arrival) const;
};

extern const ObjectKindInfo barrier_kind;

}  // namespace drover
