#include "ipc/ledger/pool_lock.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "ipc/wake/bell.hpp"

namespace drover::ipc {
namespace {

constexpr std::chrono::milliseconds kShortestWait{20};

}  // namespace

PoolGuard::PoolGuard(CellLockLayout& cell, const Membership& membership, Deadline deadline)
    : cell_(cell), self_(self_as_holder(membership)), is_held_(is_acquired(try_claim(cell, self_))) {
  if (is_held_) return;
  static Patience patience;
  const auto until = std::max(deadline.moment(), Clock::now() + kShortestWait);
  is_held_ = is_acquired(claim(cell_, self_, membership, Deadline::at(until), patience));
}

bool try_claim_for(Owner dead, CellLockLayout& lock) {
  constexpr int kRounds = 3;
  constexpr int kTries = 200;
  for (int round = 0; round < kRounds; ++round) {
    for (int tried = 0; tried < kTries; ++tried) {
      if (try_lock(lock, dead, 0)) return true;
      relax();
    }
    std::this_thread::yield();  // to the holder, if it waits for this core
  }
  return false;
}

}  // namespace drover::ipc
