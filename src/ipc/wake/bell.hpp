// ipc/wake/bell.hpp: sleeping and waking between processes, by futex, with no system call while nobody sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/wake/session_watch.hpp"

namespace drover {

/// In shared memory. Bit 0 says that somebody may be asleep, the rest counts rings.
///
/// 1. The bit is part of the word on which sleepers sleep. Beside it, a waker could clear it for an earlier ring
///    while a sleeper is between its last look and the system call, and the next waker would see no reason to wake.
/// 2. A sleeper sets the bit, looks once more, and sleeps only while the word is unchanged. Every ring changes it.
/// 3. What is announced is changed by an atomic read-modify-write before the bell is looked at, and looked at after
///    the bit is set; all of these are sequentially consistent. So one of the two sides sees the other.
/// 4. The bit is cleared only together with a wake of everybody asleep, so no sleeper is without it; or by
///    `ring_in_turn` together with a wake of one, who sets it again before it looks and, if it finds more than it
///    takes, rings for the next. In between nobody rings in vain for those still asleep. `tests/model/bell_model.hpp`
///    has it in steps.
/// 5. A waker killed between its change and its system call loses a wake-up; a sleeper killed after it was woken
///    loses all until somebody sets the bit again. Recovery after a death therefore rings every bell, and every sleep
///    is bounded.
struct alignas(kCacheLine) Bell {
  std::atomic<std::uint32_t> word;
};

/// Most pauses between two looks.
inline constexpr int kLongestGap = 8;

/// Longest look where waits are short and there are cores to spare. To sleep and to be woken takes 20 to 40 us, and
/// what a core does then takes up to three times as long, until its clock and its caches are as they were: a message
/// with a tensor, which takes 20 us, took 120 us.
inline constexpr std::chrono::microseconds kLongestLook{100};

/// Announces a sleep and returns the value to sleep on; look once more before sleeping.
[[nodiscard]] inline std::uint32_t announce_sleep(Bell& bell) noexcept { return bell.word.fetch_or(1) | 1U; }

/// Sleeps until rung, at most `longest`. May return early.
void sleep_on(Bell& bell, std::uint32_t announced, std::chrono::nanoseconds longest) noexcept;

namespace detail {
void wake_one(Bell& bell) noexcept;
void wake_in_turn(Bell& bell, std::uint32_t seen) noexcept;
void wake_all(Bell& bell, std::uint32_t seen) noexcept;
}  // namespace detail

/// Whether somebody may be asleep.
[[nodiscard]] inline bool may_have_sleepers(const Bell& bell) noexcept { return (bell.word.load() & 1U) != 0; }

/// Wakes one sleeper. One load when nobody sleeps.
inline void ring_one(Bell& bell) noexcept {
  if (may_have_sleepers(bell)) detail::wake_one(bell);
}

/// Wakes one sleeper, unless one is on its way already. For who calls `ring_in_turn` again when it has taken
/// something and there is more. One load when nobody sleeps.
inline void ring_in_turn(Bell& bell) noexcept {
  const std::uint32_t seen = bell.word.load();
  if ((seen & 1U) != 0) detail::wake_in_turn(bell, seen);
}

/// Wakes everybody. One load when nobody sleeps.
inline void ring_all(Bell& bell) noexcept {
  const std::uint32_t seen = bell.word.load();
  if ((seen & 1U) != 0) detail::wake_all(bell, seen);
}

/// Wakes everybody even if nobody seems to sleep: for recovery, and where others ring in turn.
void ring_always(Bell& bell) noexcept;

/// Whether there are so many cores that one may look for a while instead of sleeping, and nobody misses it.
[[nodiscard]] bool has_cores_to_spare() noexcept;

/// Tells the core that this is a loop of looks.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How long to look before sleeping: longer when looking helped, shorter when it did not; and longest when the last
/// waits went to sleep and were over so soon that looking would have been enough. One per handle; the races of
/// several threads on it are harmless.
class Patience {
 public:
  /// One that may look for kLongestLook, or never does.
  explicit Patience(bool may_look_long = has_cores_to_spare()) noexcept : may_look_long_(may_look_long) {}
  /// Never looks: for attempts that are costly to others.
  static Patience none() noexcept { return Patience(0, false); }
  /// Pauses to make now, with looks in between.
  [[nodiscard]] int pauses() const noexcept { return pauses_.load(std::memory_order_relaxed); }
  /// Whether to look for kLongestLook, after the pauses.
  [[nodiscard]] bool is_long() const noexcept { return short_sleeps_.load(std::memory_order_relaxed) >= kEnough; }
  /// Looking was enough.
  void helped() noexcept;
  /// It had to sleep after all.
  void failed() noexcept;
  /// It had to, and then came what was waited for, this long after the wait began.
  void slept(std::chrono::nanoseconds waited) noexcept;

 private:
  static constexpr int kEnough = 4;          // short sleeps in a row, before it looks long
  static constexpr int kAfterFailure = -28;  // and so many more once that was in vain
  Patience(int pauses, bool may_look_long) noexcept : pauses_(pauses), may_look_long_(may_look_long) {}
  static int first_pauses() noexcept;
  std::atomic<int> pauses_{first_pauses()};
  std::atomic<int> short_sleeps_{0};
  const bool may_look_long_;
};

/// Calls `attempt`, which returns something that converts to bool, until that is true, or as long as `patience` has
/// it for a wait that began then, and the deadline allows. Returns what `attempt` returned last.
template <class Attempt>
auto look_for(Patience& patience, Clock::time_point begin, Deadline deadline, Attempt attempt) {
  decltype(attempt()) result{};
  const auto end = std::min(begin + kLongestLook, deadline.moment());
  const auto is_short = [&] { return Clock::now() < end; };
  // Looks grow apart: each one takes the cache line away from whoever is about to write it.
  for (int left = patience.pauses(), gap = 1; left > 0 || (patience.is_long() && is_short());
       left -= gap, gap = std::min(gap * 2, kLongestGap)) {
    for (int pause = 0; pause < gap; ++pause) relax();
    result = attempt();
    if (result) {
      patience.helped();
      break;
    }
  }
  return result;
}

/// Calls `attempt`, which returns something that converts to bool, until that is true; looks for a while, then
/// sleeps on `bell`. Returns what `attempt` returned last: false only when the deadline has passed. Throws what
/// `membership.check()` throws once the session is over. While it sleeps, it is inside of what
/// `activity()` names; that is called only then.
template <class Activity, class Attempt>
auto wait_on(Activity activity, Bell& bell,  // NOLINT(readability-function-size): as many as a wait has
             const Membership& membership, Deadline deadline, Patience& patience, Attempt attempt) {
  auto result = attempt();
  if (result || (!deadline.is_never() && deadline.has_passed())) return result;
  const auto begin = Clock::now();
  result = look_for(patience, begin, deadline, attempt);
  if (result) return result;
  for (SessionWatch watch(membership, activity());;) {
    const std::uint32_t announced = announce_sleep(bell);
    result = attempt();
    if (result) {
      patience.slept(Clock::now() - begin);
      return result;
    }
    if (deadline.has_passed()) {
      patience.failed();
      return result;
    }
    const auto longest = std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.remaining());
    sleep_on(bell, announced, longest);
    try {
      watch.after_sleep();
    } catch (...) {
      ring_always(bell);  // the wake-up may have been meant for one who goes on
      throw;
    }
  }
}

}  // namespace drover
