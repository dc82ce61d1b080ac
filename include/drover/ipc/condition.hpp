// drover/ipc/condition.hpp: waiting, with a lock put aside, until another says that something has changed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>

#include "drover/base/clock.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/ipc/rlock.hpp"
#include "drover/ipc/shared_object.hpp"

namespace drover {

class ConditionCore;
class ConditionPlace;

/// How a wait on a condition ended. The lock is held again either way.
struct [[nodiscard]] ConditionResult {
  WaitResult wait = WaitResult::done;      ///< done: notified, or woken because a holder of the lock has died
  LockResult lock = LockResult::acquired;  ///< how the lock was acquired again
};

/// A condition over a lock: its own `RLock`, or a `Lock` or `RLock` that exists already. A notification goes to the
/// one who has waited longest.
///
/// What a death does. What a waiter had been told when it died, before it held the lock again, is passed on to
/// whoever has waited longest then, even if that one began to wait after the notification. When the holder of the
/// lock dies and nobody comes to acquire it, one who waits is woken with `acquired_after_death`. Nobody knows whom
/// the dead would have notified; so whoever gets the lock after a death through a condition, by `acquire`,
/// `try_acquire` or a wait, notifies all who wait by that, and each of them looks whether it must wait on. Whoever
/// gets it through the lock itself must call `notify_all`. A wait may therefore end without a reason after a death,
/// and at no other time. All functions are safe for all threads.
class Condition {
 public:
  /// How many threads can wait at the same time.
  static constexpr std::uint32_t kMostWaiters = 1024;

  /// Makes one, and an RLock for it.
  explicit Condition(const std::shared_ptr<Membership>& membership);
  /// Makes one over `lock`.
  Condition(const std::shared_ptr<Membership>& membership, const Lock& lock);
  /// Makes one over `lock`.
  Condition(const std::shared_ptr<Membership>& membership, const RLock& lock);
  /// Opens one, and its lock.
  Condition(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; `other` may only be destroyed or assigned to.
  Condition(Condition&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Condition& operator=(Condition&& other) noexcept;
  ~Condition();

  /// As of the lock; after a death it notifies all who wait.
  LockResult acquire(Deadline deadline = Deadline::never());
  /// As of the lock; after a death it notifies all who wait.
  LockResult try_acquire();
  /// As of the lock.
  void release();
  /// As of the lock.
  bool release_if_own() noexcept;
  /// Whether this thread holds the lock.
  [[nodiscard]] bool is_own() const noexcept;

  /// Releases the lock, however often acquired, waits for a notification, and acquires the lock as before, for which
  /// it waits beyond the deadline. Throws `Errc::invalid_argument` if this thread does not hold the lock,
  /// `Errc::limit_reached` if `kMostWaiters` wait, and `Errc::peer_lost`, without the lock, when the session is over.
  ConditionResult wait(Deadline deadline = Deadline::never());
  /// As `wait`, and ends as by the deadline when `is_interrupted()`, asked without the lock about ten times a second,
  /// is true. For hosts that handle signals between two moments of waiting: unlike a row of short waits it keeps its
  /// place, so no notification goes by between two of them.
  ConditionResult wait_interruptibly(Deadline deadline, const std::function<bool()>& is_interrupted);
  /// Waits until `predicate()`, called with the lock held, is true; `WaitResult::timed_out` if it was false to the
  /// end.
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
  /// Notifies up to `count` of those who wait, those who have waited longest first; returns how many. Throws
  /// `Errc::invalid_argument` if this thread does not hold the lock: only the death of a holder is told to others.
  std::uint32_t notify(std::uint32_t count = 1);
  /// Notifies all who wait now; returns how many. Throws as `notify`.
  std::uint32_t notify_all();
  /// How many wait and have not been notified.
  [[nodiscard]] std::uint32_t waiting() const noexcept;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const noexcept { return object_.handle(); }
  /// The name of its lock.
  [[nodiscard]] const ObjectHandle& lock_handle() const noexcept;

 private:
  using AnyLock = std::variant<Lock, RLock>;

  Condition(const std::shared_ptr<Membership>& membership, AnyLock lock);
  static AnyLock open_lock(const SharedObject& condition);
  [[nodiscard]] ConditionCore core() const noexcept;
  void require_lock(const char* what) const;
  LockResult told(LockResult result) const noexcept;
  template <class LockType>
  ConditionResult wait_with(LockType& lock, const ConditionPlace& place, Deadline deadline,
                            const std::function<bool()>& is_interrupted);

  SharedObject object_;
  AnyLock lock_;
  std::unique_ptr<Patience> patience_;
};

}  // namespace drover
