// ipc/sync/barrier_layout.hpp: a Barrier in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"

namespace drover::ipc {

/// The state is one word, changed by compare-and-swap only, so no death leaves it half changed.
///
/// 1. A round ends when the last party arrives, or by a reset. Then the number of the round increases, the arrivals
///    are cleared, and the outcome is shifted into the history. Resets are counted. A waiter learns the outcome from
///    its round's number and history bit, even if later rounds have ended; for a round older than the history, from
///    whether there was a reset since its arrival.
/// 2. A broken round stays until a reset ends it.
/// 3. A participant sets its bit in `members` when it opens the barrier and clears it when it closes it. A death with
///    the bit set breaks the barrier.
struct BarrierLayout {
  std::atomic<std::uint64_t> word;
  std::array<std::atomic<std::uint64_t>, (kMaxParticipants + 64) / 64> members;
  Bell bell;
};
static_assert(std::is_standard_layout_v<BarrierLayout>);

/// The word, unpacked.
struct BarrierWord {
  static constexpr std::uint32_t kHistory = 12;  ///< rounds whose outcome is kept
  static constexpr std::uint32_t kRoundMask = 0x7FF'FFFF;
  static constexpr std::uint16_t kHistoryMask = 0xFFF;

  bool is_broken = false;
  std::uint16_t arrived = 0;
  std::uint32_t round = 0;    ///< 27 bits, wraps around
  std::uint8_t resets = 0;    ///< rounds that were not passed, wraps around
  std::uint16_t history = 0;  ///< whether past rounds were passed; bit 0 is the last one

  [[nodiscard]] std::uint64_t pack() const;
  [[nodiscard]] static BarrierWord unpack(std::uint64_t word);
  /// The word of the next round.
  [[nodiscard]] BarrierWord next(bool is_passed) const;
  /// Whether the round of `arrival`, the word of an earlier round, was passed. For a round older than the history:
  /// only if there was no reset since.
  [[nodiscard]] bool was_passed(const BarrierWord& arrival) const;
};

}  // namespace drover::ipc
