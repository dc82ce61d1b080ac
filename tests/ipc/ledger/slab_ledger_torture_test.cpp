// Slab ledgers whose users are killed at random instants while they make, share, send and release leases.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ipc/ledger/ledger_support.hpp"
#include "ipc/ledger/torture_frame.hpp"
#include "support/peer_group.hpp"

namespace drover::ipc {
namespace {

using test::Handover;
using test::PoolMember;

class TorturedLedger {
 public:
  using Ref = LeaseRef;
  static constexpr unsigned kHandoverEvery = 2;
  static constexpr unsigned kMostHeld = 8;
  static constexpr unsigned kMostChunks = 20;

  explicit TorturedLedger(std::byte* state) : view_(state, kGeometry), ledger_(state, kGeometry) {}
  static std::size_t state_bytes() { return ledger_state_bytes(kGeometry); }
  static void format(std::byte* state) { format_ledger(state, kGeometry); }

  [[nodiscard]] std::optional<LeaseRef> allocate(std::uint64_t bytes, const PoolMember& me) const {
    return ledger_.allocate(bytes, me.self(), me);
  }
  void end(LeaseRef lease, const PoolMember& me) const { ledger_.release(lease, me.self(), me); }
  void adopt(LeaseRef lease, Owner me) const { ledger_.adopt(lease, me); }
  [[nodiscard]] BlockRange range_of(LeaseRef lease) const { return ledger_.range_of(lease); }
  void recover(Owner dead, const std::function<bool(LeaseRef)>& is_referenced) const {
    ledger_.recover(dead, is_referenced);
  }
  // Sends a lease, or another one on the same block. Publishes it first: a lease in transit to which nothing refers
  // would be lost.
  void hand_over(test::Place& place, std::vector<LeaseRef>& held, const PoolMember& me, bool is_moved) const {
    const LeaseRef sent = is_moved ? held.back() : ledger_.share(held.back(), me.self(), me);
    std::uint64_t empty = 0;
    if (place.compare_exchange_strong(empty, Handover<LeaseRef>{.ref = sent}.pack())) {
      static_cast<void>(ledger_.hand_over(sent, me.self(), kInTransit));
      if (is_moved) held.pop_back();
    } else if (!is_moved) {
      ledger_.release(sent, me.self(), me);
    }
  }
  [[nodiscard]] Owner lock_holder() const { return holder_of(view_.pool.header.lock); }
  [[nodiscard]] std::string audit() const { return test::audit(view_); }
  [[nodiscard]] std::uint64_t free_bytes() const { return ledger_.free_bytes(); }

 private:
  static constexpr LedgerGeometry kGeometry = test::ledger_of(test::kTortureChunks, 256);

  LedgerView view_;
  SlabLedger ledger_;
};

DROVER_PEER_BODY(use_ledger_until_killed) { test::work_until_killed<TorturedLedger>(peer); }

TEST(SlabLedgerTorture, processes_killed_at_random_instants_lose_nothing) {
  test::torture<TorturedLedger>("use_ledger_until_killed", 30, 3);
}

}  // namespace
}  // namespace drover::ipc
