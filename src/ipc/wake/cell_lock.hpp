// ipc/wake/cell_lock.hpp: a lock in shared memory that names its holder: a Lock, an RLock, or part of another layout.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "drover/base/clock.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/object/thread_tag.hpp"

namespace drover::ipc {

class Patience;

/// The thread that claims or holds a lock.
struct LockHolder {
  Owner owner = kNobody;  ///< the participant
  ThreadTag thread = 0;   ///< its thread
  friend bool operator==(const LockHolder&, const LockHolder&) = default;
};

namespace lock_word {

inline constexpr std::uint32_t kWaiting = 1U << 0U;  ///< a thread may sleep on the word
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

/// The holder; meaningless if the lock is free.
constexpr LockHolder holder_in(std::uint32_t word) {
  return {.owner = static_cast<Owner>((word >> kOwnerShift) & kOwnerMask),
          .thread = static_cast<ThreadTag>(word >> kThreadShift & 0xFFFFU)};
}

/// Whether the lock is free.
constexpr bool is_free(std::uint32_t word) { return (word >> kOwnerShift & kOwnerMask) == kNobody; }

/// The result for the claim that found this word.
constexpr LockResult outcome(std::uint32_t free_word) {
  return (free_word & kDeath) != 0 ? LockResult::acquired_after_death : LockResult::acquired;
}

}  // namespace lock_word
/// In shared memory; free when zeroed. The word holds the owner (13 bits), its thread (16 bits) and two marks.
///
/// 1. Claim and owner are one compare-and-swap, so a held lock always names its holder.
/// 2. A sleeper sets the waiting mark by compare-and-swap on a held word and sleeps on exactly that value. A thread
///    that frees a word with the mark clears the mark and wakes one sleeper.
/// 3. A thread that has slept claims with the mark, since others may still sleep; one that gives up leaves the mark
///    set. So every sleeper has the mark, or a waker on its way.
/// 4. A waker killed on its way, or a sleeper killed after it was woken, loses the wake-up. Recovery wakes all
///    sleepers after each death, and every sleep is bounded.
/// 5. A word freed by recovery has the death mark. The claim clears the mark in its compare-and-swap, so exactly one
///    claimant sees it; if that one dies too, recovery sets it again.
struct alignas(kCacheLine) CellLockLayout {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> depth;  ///< of an RLock: written only by the holder, which first writes it at its claim
};
static_assert(sizeof(CellLockLayout) == kCacheLine && std::is_standard_layout_v<CellLockLayout>);

/// The calling thread of this participant; throws `Errc::forked` in a forked child.
[[nodiscard]] inline LockHolder self_as_holder(const Membership& membership) {
  return {.owner = membership.require_self(), .thread = this_thread_tag()};
}

/// Claims the lock; `timed_out` if it is held. `marks` are set in the word beside the holder.
[[nodiscard]] inline LockResult try_claim(CellLockLayout& cell, LockHolder self, std::uint32_t marks = 0) noexcept {
  std::uint32_t seen = cell.word.load(std::memory_order_relaxed);  // the exchange orders
  while (lock_word::is_free(seen)) {
    const std::uint32_t claimed = lock_word::stamp_of(self) | (seen & lock_word::kWaiting) | marks;
    if (cell.word.compare_exchange_weak(seen, claimed)) return lock_word::outcome(seen);
  }
  return LockResult::timed_out;
}
/// Claims the lock, waiting until the deadline. Throws what `membership.check()` throws once the session is over, and
/// `Errc::corrupt` if the word names a holder that does not exist.
[[nodiscard]] LockResult claim(CellLockLayout& cell, LockHolder self, const Membership& membership, Deadline deadline,
                               Patience& patience);
/// Claims the lock only if recovery has freed it and nobody has claimed it since; `timed_out` otherwise.
[[nodiscard]] LockResult claim_from_dead(CellLockLayout& cell, LockHolder self) noexcept;
/// Wakes one sleeper.
void wake_one(CellLockLayout& cell) noexcept;
/// Frees the lock and wakes one sleeper. Returns false, and does nothing, if `self` does not hold it.
[[nodiscard]] inline bool free_own(CellLockLayout& cell, LockHolder self) noexcept {
  std::uint32_t seen = lock_word::stamp_of(self);
  do {
    if (!cell.word.compare_exchange_weak(seen, 0)) continue;
    if ((seen & lock_word::kWaiting) != 0) wake_one(cell);
    return true;
  } while (lock_word::holder_in(seen) == self);
  return false;
}
/// Frees the lock regardless of its holder; returns false if it is free.
[[nodiscard]] bool free_any(CellLockLayout& cell) noexcept;
/// The holder and its thread; owner `kNobody` if it is free.
[[nodiscard]] inline LockHolder full_holder_of(const CellLockLayout& cell) noexcept {
  const std::uint32_t seen = cell.word.load();
  return lock_word::is_free(seen) ? LockHolder{} : lock_word::holder_in(seen);
}
/// The participant that holds it, or `kNobody`.
[[nodiscard]] inline Owner holder_of(const CellLockLayout& cell) noexcept { return full_holder_of(cell).owner; }

/// Whether the calling thread holds it. Assigns no thread number: a thread without one holds nothing.
[[nodiscard]] inline bool is_held_by_this_thread(const CellLockLayout& cell, const Membership& membership) noexcept {
  const LockHolder holder = full_holder_of(cell);
  return holder.owner != kNobody && holder.owner == membership.self() && holder.thread == known_thread_tag();
}

/// Frees the lock if the calling thread holds it; returns whether it did. Exchanges with the thread's own number,
/// since another thread may force the release and acquire the lock between a check of the holder and the exchange.
[[nodiscard]] inline bool free_if_own(CellLockLayout& cell, const Membership& membership) noexcept {
  const LockHolder self{.owner = membership.self(), .thread = known_thread_tag()};
  return self.owner != kNobody && self.thread != 0 && free_own(cell, self);
}

/// Claims a lock whose recovery repairs what it guards, so that the next holder need not know of a death. Returns
/// whether the lock is held now.
[[nodiscard]] inline bool try_lock(CellLockLayout& cell, Owner owner, ThreadTag thread) noexcept {
  return is_acquired(try_claim(cell, {.owner = owner, .thread = thread}));
}

/// For the keeper: frees the lock, with the death mark, if `dead` holds it; returns whether it did. Repair what the
/// lock guards first, since others may change it afterwards.
bool recover(CellLockLayout& cell, Owner dead) noexcept;
/// For the keeper: wakes all sleepers.
void wake_all(CellLockLayout& cell) noexcept;

/// Throws the error of a release by a thread that is not the holder.
[[noreturn]] void fail_not_holder(const CellLockLayout& cell, LockHolder self, const ObjectHandle& handle);

/// Holds a lock for a scope.
class CellGuard {
 public:
  /// Waits until the calling thread holds it. Throws as `claim` does, and `Errc::invalid_argument` if it holds the
  /// lock already.
  CellGuard(CellLockLayout& cell, const Membership& membership);
  CellGuard(const CellGuard&) = delete;
  CellGuard& operator=(const CellGuard&) = delete;
  ~CellGuard();

 private:
  CellLockLayout& cell_;
  const Membership& membership_;
  LockHolder self_;
};

}  // namespace drover::ipc
