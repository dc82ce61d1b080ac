// ipc/wake/lock_word.hpp: what the word of a cell lock says.
#pragma once

#include <cstdint>

#include "drover/ipc/lock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/object/thread_tag.hpp"

namespace drover {

/// Who claims or holds a lock.
struct LockHolder {
  Owner owner = kNobody;  ///< the participant
  ThreadTag thread = 0;   ///< its thread
  friend bool operator==(const LockHolder&, const LockHolder&) = default;
};

namespace lock_word {

inline constexpr std::uint32_t kWaiting = 1U << 0U;  ///< somebody may sleep on the word
inline constexpr std::uint32_t kDeath = 1U << 1U;    ///< freed by recovery
inline constexpr unsigned kOwnerShift = 2;
inline constexpr unsigned kOwnerBits = 13;
inline constexpr unsigned kThreadShift = kOwnerShift + kOwnerBits;
inline constexpr std::uint32_t kOwnerMask = (1U << kOwnerBits) - 1;
static_assert(kMaxParticipants <= kOwnerMask && kThreadShift + 16 <= 32);

/// Held by `holder`, without marks.
constexpr std::uint32_t stamp_of(LockHolder holder) {
  return (std::uint32_t{holder.owner} << kOwnerShift) | (std::uint32_t{holder.thread} << kThreadShift);
}

/// Who holds; meaningless if it is free.
constexpr LockHolder holder_in(std::uint32_t word) {
  return {.owner = static_cast<Owner>((word >> kOwnerShift) & kOwnerMask),
          .thread = static_cast<ThreadTag>(word >> kThreadShift & 0xFFFFU)};
}

/// Whether nobody holds.
constexpr bool is_free(std::uint32_t word) { return (word >> kOwnerShift & kOwnerMask) == kNobody; }

/// What the claim of a word that was so is told.
constexpr LockResult outcome(std::uint32_t free_word) {
  return (free_word & kDeath) != 0 ? LockResult::acquired_after_death : LockResult::acquired;
}

}  // namespace lock_word
}  // namespace drover
