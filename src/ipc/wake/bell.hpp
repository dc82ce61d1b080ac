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

namespace drover::ipc {

/// In shared memory. Bit 0 is set while somebody may be asleep; the other bits count rings.
///
/// 1. The bit is part of the word on which sleepers sleep. In a word of its own, a waker could clear it for an
///    earlier ring while a sleeper is between its last check and the system call, and the next waker would not wake.
/// 2. A sleeper sets the bit, checks once more, and sleeps only while the word is unchanged. Every ring changes it.
/// 3. The waited-for condition is changed by an atomic read-modify-write before the waker reads the bell, and checked
///    after the sleeper sets the bit; all of these are sequentially consistent. So one of the two sides sees the
///    other.
/// 4. The bit is cleared only when all sleepers are woken, so no sleeper is without it; or by `wake_in_turn`, which
///    wakes one. That one sets the bit again before it checks and, if it finds more than it takes, wakes the next. In
///    between, other wakers skip those still asleep. `tests/model/bell_model.hpp` models it step by step.
/// 5. A waker killed between its change and its system call loses a wake-up; a sleeper killed after it was woken
///    loses all wake-ups until the bit is set again. Recovery after a death therefore rings every bell, and every
///    sleep is bounded.
struct alignas(kCacheLine) Bell {
  std::atomic<std::uint32_t> word;
};

/// Most pauses between two attempts.
inline constexpr int kLongestSpinGap = 8;

/// Longest spin where waits are short and there are cores to spare. Sleeping and waking takes 20 to 40 us, and the
/// core is up to three times slower until its clock and caches have recovered: a message with a tensor took 120 us
/// instead of 20 us.
inline constexpr std::chrono::microseconds kLongestSpin{100};

/// Announces a sleep and returns the value to sleep on; check the condition once more before sleeping.
[[nodiscard]] inline std::uint32_t announce_sleep(Bell& bell) noexcept { return bell.word.fetch_or(1) | 1U; }

/// Sleeps until rung, at most `longest`. May return early.
void sleep_on(Bell& bell, std::uint32_t announced, std::chrono::nanoseconds longest) noexcept;

namespace impl {
void wake_one(Bell& bell) noexcept;
void wake_in_turn(Bell& bell, std::uint32_t seen) noexcept;
void wake_all(Bell& bell, std::uint32_t seen) noexcept;
}  // namespace impl

/// Whether somebody may be asleep.
[[nodiscard]] inline bool may_have_sleepers(const Bell& bell) noexcept { return (bell.word.load() & 1U) != 0; }

/// Wakes one sleeper. One load when nobody sleeps.
inline void wake_one(Bell& bell) noexcept {
  if (may_have_sleepers(bell)) impl::wake_one(bell);
}

/// Wakes one sleeper, unless one is already being woken. The woken thread must call `wake_in_turn` again if there is
/// more than it takes. One load when nobody sleeps.
inline void wake_in_turn(Bell& bell) noexcept {
  const std::uint32_t seen = bell.word.load();
  if ((seen & 1U) != 0) impl::wake_in_turn(bell, seen);
}

/// Wakes all sleepers. One load when nobody sleeps.
inline void wake_all(Bell& bell) noexcept {
  const std::uint32_t seen = bell.word.load();
  if ((seen & 1U) != 0) impl::wake_all(bell, seen);
}

/// Wakes all sleepers even if nobody seems to sleep: for recovery, and for bells that others wake in turn.
void wake_always(Bell& bell) noexcept;

/// Whether there are enough cores that spinning instead of sleeping slows nobody down.
[[nodiscard]] bool has_cores_to_spare() noexcept;

/// Tells the core that this is a spin loop.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How long to spin before sleeping: longer if spinning helped, shorter if it did not, and longest if the last waits
/// slept and ended so soon that spinning would have been enough. One per handle; races between threads are harmless.
class Patience {
 public:
  /// May spin for kLongestSpin if `may_spin_long`.
  explicit Patience(bool may_spin_long = has_cores_to_spare()) noexcept : may_spin_long_(may_spin_long) {}
  /// Never spins: for attempts that are costly to others.
  static Patience none() noexcept { return Patience(0, false); }
  /// Pauses to make now, with attempts in between.
  [[nodiscard]] int pauses() const noexcept { return pauses_.load(std::memory_order_relaxed); }
  /// Whether to spin for kLongestSpin after the pauses.
  [[nodiscard]] bool is_long() const noexcept { return short_sleeps_.load(std::memory_order_relaxed) >= kEnough; }
  /// Spinning was enough.
  void helped() noexcept;
  /// The wait had to sleep.
  void failed() noexcept;
  /// The wait slept and succeeded, this long after it began.
  void slept(std::chrono::nanoseconds waited) noexcept;

 private:
  static constexpr int kEnough = 4;          // short sleeps in a row before it spins long
  static constexpr int kAfterFailure = -28;  // and this many more after a long spin failed
  Patience(int pauses, bool may_spin_long) noexcept : pauses_(pauses), may_spin_long_(may_spin_long) {}
  static int first_pauses() noexcept;
  std::atomic<int> pauses_{first_pauses()};
  std::atomic<int> short_sleeps_{0};
  const bool may_spin_long_;
};

/// Calls `attempt`, whose result converts to bool, until that is true, or for as long as `patience` and the deadline
/// allow for a wait that began at `begin`. Returns the last result.
template <class Attempt>
auto spin_for(Patience& patience, Clock::time_point begin, Deadline deadline, Attempt attempt) {
  decltype(attempt()) result{};
  const auto end = std::min(begin + kLongestSpin, deadline.moment());
  const auto is_short = [&] { return Clock::now() < end; };
  // The gaps grow, because each attempt takes the cache line from the thread that is about to write it.
  for (int left = patience.pauses(), gap = 1; left > 0 || (patience.is_long() && is_short());
       left -= gap, gap = std::min(gap * 2, kLongestSpinGap)) {
    for (int pause = 0; pause < gap; ++pause) relax();
    result = attempt();
    if (result) {
      patience.helped();
      break;
    }
  }
  return result;
}

/// Watches the session for a wait that only its deadline or the session's end can end otherwise.
inline SessionWatch watch_for(const Membership& membership, const char* activity, Deadline /*deadline*/) {
  return {membership, activity};
}
/// The same, for a wait that also ends when nobody is left who could end it.
inline SessionWatch watch_for(const SharedObject& object, const char* activity, Deadline deadline) {
  return {object, activity, deadline};
}

/// Calls `attempt`, whose result converts to bool, until that is true; spins for a while, then sleeps on `bell`.
/// Returns the last result: false only if the deadline has passed. Throws what `Membership::check` throws once the
/// session is over. `watched` is the membership, or the object: then a wait without a deadline throws
/// `Errc::peer_lost` once it would never end. While it sleeps, the thread's activity is `activity()`, which is called
/// only then.
template <class Activity, class Watched, class Attempt>
auto wait_on(Activity activity, Bell& bell,  // NOLINT(readability-function-size): as many as a wait has
             const Watched& watched, Deadline deadline, Patience& patience, Attempt attempt) {
  auto result = attempt();
  if (result || (!deadline.is_never() && deadline.has_passed())) return result;
  const auto begin = Clock::now();
  result = spin_for(patience, begin, deadline, attempt);
  if (result) return result;
  for (SessionWatch watch = watch_for(watched, activity(), deadline);;) {
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
    try {
      watch.fail_if_alone();
      const auto longest = std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.remaining());
      sleep_on(bell, announced, longest);
      watch.after_sleep();
    } catch (...) {
      wake_always(bell);  // another waiter may need the wake-up
      throw;
    }
  }
}

}  // namespace drover::ipc
