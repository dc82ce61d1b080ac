// ipc/ledger/pool_lock.hpp: the lock of a pool for a scope, for its users and for the keeper.
#pragma once

#include "drover/base/clock.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover::ipc {

/// Holds a pool's lock for a scope if it gets it in time. Waits briefly even if the deadline has passed: a running
/// holder frees the lock within a microsecond, but a stopped one may hold it for long.
class PoolGuard {
 public:
  /// Throws as `claim` does.
  PoolGuard(CellLockLayout& cell, const Membership& membership, Deadline deadline);
  PoolGuard(const PoolGuard&) = delete;
  PoolGuard& operator=(const PoolGuard&) = delete;
  ~PoolGuard() {
    if (is_held_) static_cast<void>(free_own(cell_, self_));
  }
  [[nodiscard]] bool is_held() const noexcept { return is_held_; }

 private:
  CellLockLayout& cell_;
  LockHolder self_;
  bool is_held_;
};

/// Claims the lock in the name of the dead, which no longer uses it. Gives up soon: the keeper waits for nobody.
[[nodiscard]] bool try_claim_for(Owner dead, CellLockLayout& lock);

/// At the end of a scope, frees the lock that the dead holds, or that is held in its name, and wakes all waiters.
class LockOfTheDead {
 public:
  LockOfTheDead(CellLockLayout& lock, Owner dead) noexcept : lock_(lock), dead_(dead) {}
  LockOfTheDead(const LockOfTheDead&) = delete;
  LockOfTheDead& operator=(const LockOfTheDead&) = delete;
  ~LockOfTheDead() { recover(lock_, dead_); }

 private:
  CellLockLayout& lock_;
  Owner dead_;
};

}  // namespace drover::ipc
