// ipc/ledger/pool_guard.hpp: the lock of a pool for a scope, with a deadline.
#pragma once

#include "drover/base/clock.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover {

/// Holds a pool's lock for a scope, if it comes by it in time. Even who wants to wait for no memory waits for the
/// lock a little: a holder that runs frees it within a microsecond. One that was stopped may hold it for long.
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

}  // namespace drover
