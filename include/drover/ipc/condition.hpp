// drover/ipc/condition.hpp: a condition variable over a lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>

#include "drover/base/clock.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {
class ConditionCore;
class ConditionPlace;
struct ObjectAccess;
class Patience;
}  // namespace drover::ipc

namespace drover {

/// How a wait on a condition ended. The lock is held in either case.
struct [[nodiscard]] ConditionResult {
  WaitResult wait = WaitResult::done;      ///< done: notified, or woken because a holder of the lock has died
  LockResult lock = LockResult::acquired;  ///< how the lock was reacquired
};

/// A condition variable over its own `RLock`, or over an existing `Lock` or `RLock`. A notification goes to the
/// thread that has waited longest.
///
/// Deaths. If a notified waiter dies before it has reacquired the lock, its notification goes to the thread that has
/// waited longest then, even if that one began to wait after the notification. If the holder of the lock dies and
/// nobody acquires it, one waiter is woken with `acquired_after_death`. The dead holder may have owed notifications,
/// so a thread that gets the lock after a death through a condition, by `acquire`, `try_acquire` or a wait, notifies
/// all waiters, and each of them must check its predicate. A thread that gets it through the lock itself must call
/// `notify_all`. Spurious wake-ups therefore happen after a death, and at no other time. All functions are safe for
/// all threads.
class Condition {
 public:
  /// The most threads that can wait at the same time.
  static constexpr std::uint32_t kMostWaiters = 1024;

  /// Makes one with an RLock of its own.
  explicit Condition(const std::shared_ptr<Membership>& membership);
  /// Makes one over `lock`.
  Condition(const std::shared_ptr<Membership>& membership, const Lock& lock);
  /// Makes one over `lock`.
  Condition(const std::shared_ptr<Membership>& membership, const RLock& lock);
  /// Opens one and its lock.
  Condition(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; use of `other` then throws `Errc::invalid_argument`.
  Condition(Condition&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Condition& operator=(Condition&& other) noexcept;
  ~Condition();

  /// Acquires the lock; after a death, notifies all waiters.
  LockResult acquire(Deadline deadline = Deadline::never());
  /// Acquires the lock if it is free; after a death, notifies all waiters.
  LockResult try_acquire();
  /// Releases the lock.
  void release();
  /// Releases the lock if this thread holds it.
  bool release_if_own() noexcept;
  /// Whether this thread holds the lock.
  [[nodiscard]] bool is_own() const;

  /// Releases the lock, however often acquired, waits for a notification, and reacquires the lock to the same depth,
  /// beyond the deadline if necessary. Throws `Errc::invalid_argument` if this thread does not hold the lock,
  /// `Errc::limit_reached` if `kMostWaiters` wait, and `Errc::peer_lost`: without the lock when the session is over,
  /// and with it if there is no deadline and nobody is left who could notify (see Event::wait).
  ConditionResult wait(Deadline deadline = Deadline::never());
  /// Like `wait`, but also times out when `is_interrupted()`, called without the lock about ten times a second, is
  /// true. For hosts that handle signals during a wait: unlike a series of short waits it misses no notification in
  /// between.
  ConditionResult wait_interruptibly(Deadline deadline, const std::function<bool()>& is_interrupted);
  /// Waits until `predicate()`, called with the lock held, is true; `WaitResult::timed_out` if it is still false at
  /// the deadline.
  template <class Predicate>
  ConditionResult wait_for(Predicate predicate, Deadline deadline = Deadline::never()) {
    ConditionResult all;
    while (!predicate()) {
      const ConditionResult one = wait(deadline);
      if (one.lock == LockResult::acquired_after_death) all.lock = one.lock;
      if (one.wait == WaitResult::done) continue;
      all.wait = predicate() ? WaitResult::done : WaitResult::timed_out;
      return all;
    }
    return all;
  }
  /// Notifies up to `count` waiters, those that have waited longest first; returns how many. Throws
  /// `Errc::invalid_argument` if this thread does not hold the lock: only the death of a holder is reported to
  /// others.
  std::uint32_t notify(std::uint32_t count = 1);
  /// Notifies all current waiters; returns how many. Throws as `notify`.
  std::uint32_t notify_all();
  /// Waiters that have not been notified.
  [[nodiscard]] std::uint32_t waiting() const;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const { return object_.handle(); }
  /// The name of its lock.
  [[nodiscard]] const ObjectHandle& lock_handle() const;

 private:
  using AnyLock = std::variant<Lock, RLock>;

  Condition(const std::shared_ptr<Membership>& membership, AnyLock lock);
  static AnyLock open_lock(const SharedObject& condition);
  [[nodiscard]] ipc::ConditionCore core() const;
  void require_lock(const char* what) const;
  LockResult notify_after_death(LockResult result) const noexcept;
  template <class LockType>
  ConditionResult wait_with(LockType& lock, const ipc::ConditionPlace& place, Deadline deadline,
                            const std::function<bool()>& is_interrupted);

  friend struct ipc::ObjectAccess;

  SharedObject object_;
  AnyLock lock_;
  std::unique_ptr<ipc::Patience> patience_;
};

}  // namespace drover
