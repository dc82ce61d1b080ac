#include "ipc/ledger/pool_guard.hpp"

#include <algorithm>
#include <chrono>

#include "ipc/wake/bell.hpp"

namespace drover {
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

}  // namespace drover
