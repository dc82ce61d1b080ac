// Block pools whose users are killed at random instants.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ipc/ledger/pool_support.hpp"
#include "ipc/ledger/torture_frame.hpp"
#include "support/peer_group.hpp"

namespace drover::ipc {
namespace {

using test::Handover;
using test::PoolMember;

class TorturedPool {
 public:
  using Ref = BlockRef;
  static constexpr unsigned kHandoverEvery = 3;
  static constexpr unsigned kMostHeld = 12;
  static constexpr unsigned kMostChunks = 30;

  explicit TorturedPool(std::byte* state) : view_(state, test::kTortureChunks), pool_(state, kGeometry) {}
  static std::size_t state_bytes() { return pool_state_bytes(kGeometry); }
  static void format(std::byte* state) { format_pool(state, kGeometry); }

  [[nodiscard]] std::optional<BlockRef> allocate(std::uint64_t bytes, const PoolMember& me) const {
    return pool_.allocate(bytes, me.self(), me);
  }
  void end(BlockRef block, const PoolMember& me) const { pool_.free(block, me.self(), me); }
  void adopt(BlockRef block, Owner me) const { pool_.adopt(block, me); }
  [[nodiscard]] BlockRange range_of(BlockRef block) const {
    return {.offset = pool_.offset_of(block), .bytes = pool_.capacity_of(block)};
  }
  void recover(Owner dead, const std::function<bool(BlockRef)>& is_referenced) const {
    pool_.recover(dead, is_referenced);
  }
  static void hand_over(test::Place& place, std::vector<BlockRef>& held, const PoolMember& /*me*/,
                        bool /*is_moved*/) {
    std::uint64_t empty = 0;
    if (place.compare_exchange_strong(empty, Handover<BlockRef>{.ref = held.back()}.pack())) held.pop_back();
  }
  [[nodiscard]] Owner lock_holder() const { return holder_of(view_.header.lock); }
  [[nodiscard]] std::string audit() const { return test::audit(view_); }
  [[nodiscard]] std::uint64_t free_bytes() const { return pool_.usage(PoolMember(1)).largest_free_bytes; }

 private:
  static constexpr PoolGeometry kGeometry = test::chunks(test::kTortureChunks);

  PoolView view_;
  BlockPool pool_;
};

DROVER_PEER_BODY(use_pool_until_killed) { test::work_until_killed<TorturedPool>(peer); }

TEST(BlockPoolTorture, processes_killed_at_random_instants_lose_nothing) {
  test::torture<TorturedPool>("use_pool_until_killed", 40, 1);
}

}  // namespace
}  // namespace drover::ipc
