// drover/ipc/lock.hpp: mutual exclusion between all threads of all processes of a session.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "drover/base/checked.hpp"
#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {
struct CellLockLayout;
class Patience;
}  // namespace drover::ipc

namespace drover {

/// How an attempt to take a lock ended.
enum class [[nodiscard]] LockResult {
  acquired,              ///< the caller holds it
  acquired_after_death,  ///< the caller holds it; the last holder died, so the guarded data may be half changed
  timed_out,             ///< the deadline passed first
};

/// Whether the caller holds the lock now.
[[nodiscard]] constexpr bool is_acquired(LockResult result) noexcept { return result != LockResult::timed_out; }

/// A lock. When its holder dies, the keeper frees it, and only the next acquisition reports that. It belongs to the
/// thread that acquired it. Makes no system call without contention. Not fair. All functions are safe for all
/// threads.
class Lock {
 public:
  /// Makes one.
  explicit Lock(std::shared_ptr<Membership> membership);
  /// Opens one.
  Lock(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; use of `other` then throws `Errc::invalid_argument`.
  Lock(Lock&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Lock& operator=(Lock&& other) noexcept;
  ~Lock();

  /// Waits until the calling thread holds the lock. Throws `Errc::peer_lost` when the session is over,
  /// `Errc::corrupt` if something has overwritten the lock, and `Errc::invalid_argument` if this thread already holds
  /// it and would wait forever; with a deadline it waits, since another thread may call `force_release`.
  LockResult acquire(Deadline deadline = Deadline::never());
  /// Acquires the lock if it is free.
  LockResult try_acquire();
  /// Releases the lock. Throws `Errc::invalid_argument`, naming the holder, if this thread does not hold it.
  void release();
  /// Releases the lock regardless of its holder; for callers that pass locks on. Throws `Errc::invalid_argument` if
  /// it is free.
  void force_release();
  /// Releases the lock if this thread holds it, and returns whether it did; for destructors. False if moved from.
  bool release_if_own() noexcept;
  /// Whether anybody holds it now.
  [[nodiscard]] bool is_held() const;
  /// Whether this thread holds it.
  [[nodiscard]] bool is_own() const;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const { return object_.handle(); }

 private:
  friend class Condition;

  // For a condition's wait: releases the lock, reacquires it, and acquires it if its holder has died and the death
  // was not reported yet. An RLock has the same with its depth.
  std::uint32_t release_whole();
  LockResult acquire_whole(std::uint32_t depth);
  LockResult acquire_from_dead(std::uint32_t depth);
  [[nodiscard]] ipc::CellLockLayout& cell() const;

  SharedObject object_;
  std::unique_ptr<ipc::Patience> patience_;
};

/// A `Lock` that its holder may acquire again; it is free when released as often. A holder's death frees it at once,
/// however often it was acquired. A thread that ends while it holds the lock leaves it held; after 65535 further
/// threads of its process have used locks, one of them gets its number and counts as the holder. All functions are
/// safe for all threads.
class RLock {
 public:
  /// Makes one.
  explicit RLock(std::shared_ptr<Membership> membership);
  /// Opens one.
  RLock(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; use of `other` then throws `Errc::invalid_argument`.
  RLock(RLock&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  RLock& operator=(RLock&& other) noexcept;
  ~RLock();

  /// Waits until the calling thread holds the lock once more. The first acquisition after a holder's death reports
  /// it. Throws `Errc::peer_lost` when the session is over.
  LockResult acquire(Deadline deadline = Deadline::never());
  /// Acquires the lock if it is free or this thread's.
  LockResult try_acquire();
  /// Undoes one acquisition. Throws `Errc::invalid_argument`, naming the holder, if this thread does not hold it.
  void release();
  /// The same if this thread holds it; returns whether it did. For destructors.
  bool release_if_own() noexcept;
  /// Whether anybody holds it now.
  [[nodiscard]] bool is_held() const;
  /// Whether this thread holds it.
  [[nodiscard]] bool is_own() const;
  /// Acquisitions by this thread that are not yet released.
  [[nodiscard]] std::uint32_t depth() const;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const { return object_.handle(); }

 private:
  friend class Condition;

  // For a condition's wait: frees the lock at any depth, and reacquires it to that depth.
  std::uint32_t release_whole();
  LockResult acquire_whole(std::uint32_t depth);
  LockResult acquire_from_dead(std::uint32_t depth);
  [[nodiscard]] ipc::CellLockLayout& cell() const;

  SharedObject object_;
  std::unique_ptr<ipc::Patience> patience_;
};

/// Holds an object with `acquire` and `release`, such as a `Lock` or an `RLock`, for a scope: `HeldLock held(lock);`
/// Belongs to the thread that made it, and must not outlive the lock.
template <class LockType>
class [[nodiscard]] HeldLock {
 public:
  /// Acquires `lock`; `is_held` is false if that failed before the deadline.
  explicit HeldLock(LockType& lock, Deadline deadline = Deadline::never())
      : lock_(&lock), result_(lock.acquire(deadline)) {
    if (!is_acquired(result_)) lock_ = nullptr;
  }
  /// Takes over the hold.
  HeldLock(HeldLock&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)), result_(other.result_) {}
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  HeldLock& operator=(HeldLock&&) = delete;
  /// Releases the lock, unless it was released already.
  ~HeldLock() {
    if (lock_ != nullptr) static_cast<void>(lock_->release_if_own());
  }

  /// Whether the lock is held through this.
  [[nodiscard]] bool is_held() const noexcept { return lock_ != nullptr; }
  /// How it was acquired.
  [[nodiscard]] LockResult result() const noexcept { return result_; }
  /// Releases the lock now. Throws `Errc::invalid_argument` unless `is_held`.
  void release() {
    if (lock_ == nullptr) detail::fail_empty();
    std::exchange(lock_, nullptr)->release();
  }

 private:
  LockType* lock_;
  LockResult result_;
};

}  // namespace drover
