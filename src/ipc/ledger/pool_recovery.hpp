// ipc/ledger/pool_recovery.hpp: what the keeper's work on a pool after a death is made of.
#pragma once

#include "ipc/ledger/block_pool_core.hpp"
#include "ipc/wake/cell_lock.hpp"

namespace drover {

/// Makes everything anew that is derived from the words of a pool. Requires: the lock is held, by the dead.
void rebuild(const PoolCore<>& core);

/// Claims the lock in the name of the dead, who has no other use for it. Gives up soon: the keeper waits for nobody.
[[nodiscard]] bool try_claim_for(Owner dead, CellLockLayout& lock);

/// Frees, at the end of a scope, the lock that is held by the dead or in its name, and wakes who waits for it.
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

}  // namespace drover
