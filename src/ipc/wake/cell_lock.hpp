// ipc/wake/cell_lock.hpp: a lock in shared memory that says who holds it; part of other layouts.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "drover/base/clock.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/object/thread_tag.hpp"
#include "ipc/wake/lock_word.hpp"

namespace drover {

class Patience;

/// In shared memory; free when zeroed. The word holds the owner (13 bits), its thread (16 bits) and two marks.
///
/// 1. Claim and owner are one compare-and-swap, so the lock is never held by nobody known.
/// 2. A sleeper sets the waiting mark by compare-and-swap on a held word and sleeps on that very value. Whoever frees
///    a word with the mark wakes one sleeper and takes the mark away.
/// 3. Who has slept claims with the mark, since others may still sleep; who gives up leaves with the mark set. So
///    there is no sleeper without the mark, or without a waker on its way.
/// 4. A waker killed on that way, or a sleeper killed after it was woken, loses the wake-up. Recovery wakes everybody
///    after each death, and every sleep is bounded.
/// 5. A word freed by recovery has the death mark. The claim that takes the word takes the mark away in the same
///    compare-and-swap, so exactly one claimant sees it; if that one dies too, recovery sets it again.
struct alignas(kCacheLine) CellLockLayout {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> depth;  ///< of a recursive lock: written by the holder alone, first of all at its claim
};
static_assert(sizeof(CellLockLayout) == kCacheLine && std::is_standard_layout_v<CellLockLayout>);

/// The calling thread of this participant; throws `Errc::forked` in a forked child.
[[nodiscard]] inline LockHolder self_as_holder(const Membership& membership) {
  return {.owner = membership.require_self(), .thread = this_thread_tag()};
}

/// The claim and its outcome; `timed_out` if the lock is held. `marks` is what the word shall have beside the stamp.
[[nodiscard]] inline LockResult try_claim(CellLockLayout& cell, LockHolder self, std::uint32_t marks = 0) noexcept {
  std::uint32_t seen = cell.word.load(std::memory_order_relaxed);  // the exchange orders
  while (lock_word::is_free(seen)) {
    const std::uint32_t claimed = lock_word::stamp_of(self) | (seen & lock_word::kWaiting) | marks;
    if (cell.word.compare_exchange_weak(seen, claimed)) return lock_word::outcome(seen);
  }
  return LockResult::timed_out;
}
/// Claims, waiting for as long as `deadline` says. Throws what `membership.check()` throws once the session is over,
/// and `Errc::corrupt` if the word says that a participant holds it who cannot be.
[[nodiscard]] LockResult claim(CellLockLayout& cell, LockHolder self, const Membership& membership, Deadline deadline,
                               Patience& patience);
/// Claims only a lock that recovery has freed and nobody has claimed since; `timed_out` otherwise.
[[nodiscard]] LockResult claim_from_dead(CellLockLayout& cell, LockHolder self) noexcept;
/// Wakes one who sleeps on the lock.
void wake_one(CellLockLayout& cell) noexcept;
/// Frees the lock and wakes one who waits. Returns false, and does nothing, if `self` does not hold it.
[[nodiscard]] inline bool free_own(CellLockLayout& cell, LockHolder self) noexcept {
  std::uint32_t seen = lock_word::stamp_of(self);
  do {
    if (!cell.word.compare_exchange_weak(seen, 0)) continue;
    if ((seen & lock_word::kWaiting) != 0) wake_one(cell);
    return true;
  } while (lock_word::holder_in(seen) == self);
  return false;
}
/// Frees the lock whoever holds it; returns false if nobody does.
[[nodiscard]] bool free_any(CellLockLayout& cell) noexcept;
/// The holder and its thread; owner `kNobody` if it is free.
[[nodiscard]] inline LockHolder full_holder_of(const CellLockLayout& cell) noexcept {
  const std::uint32_t seen = cell.word.load();
  return lock_word::is_free(seen) ? LockHolder{} : lock_word::holder_in(seen);
}
/// The participant that holds it, or `kNobody`.
[[nodiscard]] inline Owner holder_of(const CellLockLayout& cell) noexcept { return full_holder_of(cell).owner; }

/// Whether the calling thread of this participant holds it. Numbers no thread: one that has none holds nothing.
[[nodiscard]] inline bool is_held_by_this_thread(const CellLockLayout& cell, const Membership& membership) noexcept {
  const LockHolder holder = full_holder_of(cell);
  return holder.owner != kNobody && holder.owner == membership.self() && holder.thread == known_thread_tag();
}

/// Frees the lock if the calling thread holds it, and says whether it did. Names the thread itself, since between a
/// look at the holder and the exchange another may force the release and acquire.
[[nodiscard]] inline bool free_if_own(CellLockLayout& cell, const Membership& membership) noexcept {
  const LockHolder self{.owner = membership.self(), .thread = known_thread_tag()};
  return self.owner != kNobody && self.thread != 0 && free_own(cell, self);
}

/// Claims for layouts whose recovery sets right what the lock guards, so that the death of an earlier holder is of no
/// interest to the next. Returns whether the lock is held now.
[[nodiscard]] inline bool try_lock(CellLockLayout& cell, Owner owner, ThreadTag thread) noexcept {
  return is_acquired(try_claim(cell, {.owner = owner, .thread = thread}));
}

/// For the keeper: whether `dead` held the lock, which is now free with the death mark. Set right what the lock
/// guards before this call; afterwards others change it.
bool recover(CellLockLayout& cell, Owner dead) noexcept;
/// For the keeper: wakes everybody who sleeps on the lock.
void wake_all(CellLockLayout& cell) noexcept;

/// Holds the lock of such a layout for a scope.
class CellGuard {
 public:
  /// Waits until the calling thread holds it. Throws as `claim` does, and `Errc::invalid_argument` if this thread
  /// holds it already.
  CellGuard(CellLockLayout& cell, const Membership& membership);
  CellGuard(const CellGuard&) = delete;
  CellGuard& operator=(const CellGuard&) = delete;
  ~CellGuard();

 private:
  CellLockLayout& cell_;
  const Membership& membership_;
  LockHolder self_;
};

}  // namespace drover
