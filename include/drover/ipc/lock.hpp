// drover/ipc/lock.hpp: mutual exclusion between all threads of all processes of a session.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/ipc/shared_object.hpp"

namespace drover {

class Patience;
struct CellLockLayout;

/// How an attempt to take a lock ended.
enum class [[nodiscard]] LockResult {
  acquired,              ///< the caller holds it
  acquired_after_death,  ///< the same; the last holder died, so what the lock guards may be half changed
  timed_out,             ///< the deadline passed first
};

/// Whether the caller holds the lock now.
[[nodiscard]] constexpr bool is_acquired(LockResult result) noexcept { return result != LockResult::timed_out; }

/// A lock. When its holder dies, the keeper frees it, and exactly the next to acquire it is told; from then on it is
/// a lock like any other. It belongs to the thread that acquired it. Without contention neither acquiring nor
/// releasing makes a system call. Not fair: whoever comes at the right moment gets it. All functions are safe for all
/// threads.
class Lock {
 public:
  /// Makes one.
  explicit Lock(std::shared_ptr<Membership> membership);
  /// Opens one.
  Lock(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; `other` may only be destroyed or assigned to.
  Lock(Lock&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Lock& operator=(Lock&& other) noexcept;
  ~Lock();

  /// Waits until the calling thread holds the lock. Throws `Errc::peer_lost` when the session is over,
  /// `Errc::corrupt` if something wrote over the lock, and `Errc::invalid_argument` if this thread holds it already
  /// and would wait for ever; with a deadline it waits, since another may call `force_release`.
  LockResult acquire(Deadline deadline = Deadline::never());
  /// Takes the lock if it is free.
  LockResult try_acquire();
  /// Gives the lock back. Throws `Errc::invalid_argument`, naming the holder, if this thread does not hold it.
  void release();
  /// Gives the lock back whoever holds it; for callers that pass locks on. Throws `Errc::invalid_argument` if nobody
  /// holds it.
  void force_release();
  /// Gives the lock back if this thread holds it, and says whether it did; for destructors.
  bool release_if_own() noexcept;
  /// Whether anybody holds it now.
  [[nodiscard]] bool is_held() const noexcept;
  /// Whether this thread holds it.
  [[nodiscard]] bool is_own() const noexcept;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const noexcept { return object_.handle(); }

 private:
  friend class Condition;

  // For a wait: puts the lock aside, takes it back, and takes it if its holder has died and nobody was told yet. An
  // RLock has the same with the depth to which it was acquired.
  std::uint32_t release_whole();
  LockResult acquire_whole(std::uint32_t depth);
  LockResult acquire_from_dead(std::uint32_t depth);
  [[nodiscard]] CellLockLayout& cell() const noexcept;

  SharedObject object_;
  std::unique_ptr<Patience> patience_;
};

/// Holds something that has `acquire` and `release`, such as a `Lock` or an `RLock`, for a scope: `HeldLock
/// held(lock);` Belongs to the thread that made it, and must not outlive the lock.
template <class LockType>
class [[nodiscard]] HeldLock {
 public:
  /// Acquires `lock`; `is_held` says whether that was in time.
  explicit HeldLock(LockType& lock, Deadline deadline = Deadline::never())
      : lock_(&lock), result_(lock.acquire(deadline)) {
    if (!is_acquired(result_)) lock_ = nullptr;
  }
  /// Takes over the hold.
  HeldLock(HeldLock&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)), result_(other.result_) {}
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  HeldLock& operator=(HeldLock&&) = delete;
  /// Releases the lock, unless that has happened.
  ~HeldLock() {
    if (lock_ != nullptr) static_cast<void>(lock_->release_if_own());
  }

  /// Whether the lock is held through this.
  [[nodiscard]] bool is_held() const noexcept { return lock_ != nullptr; }
  /// How it was acquired.
  [[nodiscard]] LockResult result() const noexcept { return result_; }
  /// Releases the lock now. Requires: is_held().
  void release() { std::exchange(lock_, nullptr)->release(); }

 private:
  LockType* lock_;
  LockResult result_;
};

}  // namespace drover
