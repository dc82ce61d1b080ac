// Blocks and leases of a slab without deaths, and misuse.
#include "ipc/ledger/slab_ledger.hpp"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/ledger/ledger_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::audit;
using test::expect_error;
using test::kChunk;
using test::ledger_of;
using test::LedgerMemory;
using test::PoolMember;

constexpr Owner kOne = 1;
constexpr Owner kTwo = 2;

class SlabLedgerTest : public ::testing::Test {
 protected:
  ~SlabLedgerTest() override { EXPECT_EQ(audit(memory_.view()), ""); }

  LeaseRef allocate(std::uint64_t chunks, Owner holder = kOne) {
    return ledger_.allocate(chunks * kChunk, holder, member_).value();
  }

  PoolMember member_{kOne};
  LedgerMemory memory_{ledger_of(64, 16)};
  SlabLedger ledger_ = memory_.ledger();
};

TEST_F(SlabLedgerTest, a_block_lives_as_long_as_there_is_a_lease_on_it) {
  const LeaseRef first = allocate(3);
  EXPECT_EQ(ledger_.range_of(first), (BlockRange{.offset = 0, .bytes = 3 * kChunk}));
  const LeaseRef second = ledger_.share(first, kTwo, member_);
  EXPECT_EQ(ledger_.range_of(second), ledger_.range_of(first));
  EXPECT_EQ(ledger_.leases_beside(first), 2U);
  ledger_.release(first, kOne, member_);
  EXPECT_EQ(ledger_.used_blocks(), 1U);
  EXPECT_EQ(ledger_.range_of(second).bytes, 3U * kChunk);
  ledger_.release(second, kTwo, member_);
  EXPECT_EQ(ledger_.used_blocks(), 0U);
  EXPECT_EQ(ledger_.free_bytes(), 64U * kChunk);
}

TEST_F(SlabLedgerTest, blocks_do_not_overlap) {
  const LeaseRef first = allocate(3);
  const LeaseRef second = allocate(5);
  const BlockRange a = ledger_.range_of(first);
  const BlockRange b = ledger_.range_of(second);
  EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
}

TEST_F(SlabLedgerTest, allocation_fails_if_no_extent_is_large_enough) {
  EXPECT_TRUE(ledger_.is_too_large(65 * kChunk));
  EXPECT_FALSE(ledger_.allocate(65 * kChunk, kOne, member_));
  const LeaseRef all = allocate(64);
  EXPECT_FALSE(ledger_.allocate(1, kOne, member_));
  ledger_.release(all, kOne, member_);
  EXPECT_TRUE(ledger_.allocate(0, kOne, member_));
}

TEST_F(SlabLedgerTest, a_lease_is_released_once_and_by_its_holder) {
  const LeaseRef lease = allocate(1);
  expect_error(Errc::not_found, [&] { ledger_.release(lease, kTwo, member_); }, {"held by 1, not by participant 2"});
  ledger_.release(lease, kOne, member_);
  expect_error(Errc::not_found, [&] { ledger_.release(lease, kOne, member_); }, {"has ended", "keep a lease"});
}

TEST_F(SlabLedgerTest, a_stale_lease_is_an_error_after_its_cell_is_reused) {
  const LeaseRef stale = allocate(1);
  ledger_.release(stale, kOne, member_);
  const LeaseRef next = allocate(1);
  ASSERT_EQ(next.index, stale.index);
  EXPECT_NE(next.generation, stale.generation);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(stale)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.holder_of(stale)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.leases_beside(stale)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.share(stale, kTwo, member_)); });
  expect_error(Errc::not_found, [&] { ledger_.adopt(stale, kTwo); });
  EXPECT_FALSE(ledger_.hand_over(stale, kOne, kTwo));
  EXPECT_EQ(ledger_.holder_of(next), kOne);
}

TEST_F(SlabLedgerTest, an_impossible_lease_is_an_error) {
  const LeaseRef nonsense{.index = 1'000'000, .generation = 0};
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(nonsense)); });
  expect_error(Errc::not_found, [&] { ledger_.release(nonsense, kOne, member_); });
  EXPECT_FALSE(ledger_.hand_over(nonsense, kOne, kTwo));
  ledger_.drop(nonsense, kInTransit);
  const LeaseRef unused{.index = 3, .generation = 0};
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(unused)); });
}

TEST_F(SlabLedgerTest, a_lease_changes_holders_without_a_lock) {
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kTwo, 7));  // a participant stopped in an operation
  EXPECT_EQ(ledger_.hand_over({.index = 0, .generation = 0}, kOne, kTwo), false);
  recover(memory_.view().pool.header.lock, kTwo);
  const LeaseRef lease = allocate(1);
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kTwo, 7));
  EXPECT_TRUE(ledger_.hand_over(lease, kOne, kInTransit));
  EXPECT_FALSE(ledger_.hand_over(lease, kOne, kTwo)) << "the giver no longer has it";
  ledger_.adopt(lease, kTwo);
  EXPECT_EQ(ledger_.holder_of(lease), kTwo);
  recover(memory_.view().pool.header.lock, kTwo);
}

TEST_F(SlabLedgerTest, too_many_leases_are_an_error) {
  const LeaseRef first = allocate(1);
  std::vector<LeaseRef> shared;
  for (int count = 1; count < 16; ++count) shared.push_back(ledger_.share(first, kOne, member_));
  expect_error(Errc::limit_reached, [&] { static_cast<void>(ledger_.share(first, kOne, member_)); }, {"16 leases"});
  expect_error(Errc::limit_reached, [&] { static_cast<void>(ledger_.allocate(1, kOne, member_)); });
  ledger_.release(shared[4], kOne, member_);
  EXPECT_EQ(ledger_.share(first, kOne, member_).index, shared[4].index);
}

TEST_F(SlabLedgerTest, leases_for_a_part_pass_it_on) {
  const LeaseRef whole = allocate(4);
  const LeaseRef other_block = allocate(1);
  static_cast<void>(ledger_.share(other_block, kOne, member_, 7));
  EXPECT_EQ(ledger_.parts_of(whole, member_).value(), std::vector<std::uint32_t>());
  const LeaseRef part = ledger_.share(whole, kOne, member_, 5);
  const LeaseRef received = ledger_.share(part, kTwo, member_);
  static_cast<void>(ledger_.share(whole, kOne, member_, 3));
  EXPECT_EQ(ledger_.range_of(received), ledger_.range_of(whole));
  EXPECT_EQ(ledger_.parts_of(whole, member_).value(), (std::vector<std::uint32_t>{3, 5}));
  ASSERT_TRUE(ledger_.hand_over(part, kOne, kInTransit));
  ledger_.drop(part, kInTransit);
  EXPECT_EQ(ledger_.parts_of(whole, member_).value(), (std::vector<std::uint32_t>{3, 5})) << "the receiver has it";
  ledger_.recover(kTwo, test::never_sent);
  EXPECT_EQ(ledger_.parts_of(whole, member_).value(), (std::vector<std::uint32_t>{3}));
  const LeaseRef again = ledger_.share(whole, kOne, member_);
  EXPECT_EQ(ledger_.parts_of(again, member_).value(), (std::vector<std::uint32_t>{3})) << "cells are reused";
}

TEST_F(SlabLedgerTest, parts_are_unknown_while_another_holds_the_lock) {
  const LeaseRef whole = allocate(4);
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kTwo, 7));
  EXPECT_EQ(ledger_.parts_of(whole, member_), std::nullopt);
  recover(memory_.view().pool.header.lock, kTwo);
  EXPECT_TRUE(ledger_.parts_of(whole, member_));
}

TEST_F(SlabLedgerTest, usage_shows_the_share_of_each_holder) {
  const LeaseRef mine = allocate(2);
  static_cast<void>(ledger_.share(mine, kTwo, member_));
  static_cast<void>(allocate(4, kTwo));
  const LeaseRef sent = allocate(8);
  ASSERT_TRUE(ledger_.hand_over(sent, kOne, kInTransit));
  const LedgerUsage usage = ledger_.usage(member_).value();
  EXPECT_EQ(usage.total_bytes, 64U * kChunk);
  EXPECT_EQ(usage.free_bytes, 50U * kChunk);
  EXPECT_EQ(usage.largest_free_bytes, 50U * kChunk);
  EXPECT_EQ(usage.blocks, 3U);
  EXPECT_EQ(usage.holders.at(kOne).bytes, 2U * kChunk);
  EXPECT_EQ(usage.holders.at(kTwo).leases, 2U);
  EXPECT_EQ(usage.holders.at(kTwo).bytes, 6U * kChunk);
  EXPECT_EQ(usage.holders.at(kInTransit).bytes, 8U * kChunk);
}

TEST_F(SlabLedgerTest, a_lease_that_is_being_sent_belongs_to_its_sender_until_it_is_adopted) {
  const LeaseRef lease = allocate(1);
  ASSERT_TRUE(ledger_.hand_over(lease, kOne, sending_by(kOne)));
  EXPECT_TRUE(ledger_.is_of(lease, kOne));
  EXPECT_FALSE(ledger_.is_of(lease, kTwo));
  EXPECT_FALSE(ledger_.is_of({.index = 1'000'000, .generation = 0}, kOne));
  EXPECT_EQ(ledger_.usage(member_).value().holders.at(kOne).leases, 1U);
  ledger_.adopt(lease, kOne);  // another thread of the sender has received it
  EXPECT_FALSE(ledger_.hand_over(lease, sending_by(kOne), kInTransit)) << "the sender has nothing to give away";
  ledger_.release(lease, kOne, member_);
}

TEST_F(SlabLedgerTest, impossible_holders_are_refused) {
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(ledger_.allocate(1, kNobody, member_)); });
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(ledger_.allocate(1, kSlabItself, member_)); });
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(ledger_.hand_over({}, kOne, 3500)); });
}

TEST_F(SlabLedgerTest, impossible_geometries_are_refused) {
  expect_error(Errc::invalid_argument, [] { static_cast<void>(ledger_state_bytes(ledger_of(64, 0))); }, {"leases"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(ledger_state_bytes(ledger_of(0, 4))); });
  expect_error(Errc::invalid_argument, [] { static_cast<void>(ledger_state_bytes(ledger_of(64, kMaxChunks + 1))); });
}

TEST_F(SlabLedgerTest, the_keeper_drops_leases_that_nobody_received) {
  const LeaseRef sent = allocate(2);
  ledger_.drop(sent, kInTransit);
  EXPECT_EQ(ledger_.holder_of(sent), kOne) << "it is not in transit";
  ASSERT_TRUE(ledger_.hand_over(sent, kOne, kInTransit));
  ledger_.drop(sent, kInTransit);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(sent)); });
  ledger_.drop(sent, kInTransit);
  EXPECT_EQ(ledger_.used_blocks(), 1U);
  ledger_.release(allocate(64), kOne, member_);
  EXPECT_EQ(ledger_.used_blocks(), 0U);
}

TEST_F(SlabLedgerTest, a_lease_dropped_while_the_lock_is_held_is_ended_by_the_next_user) {
  const LeaseRef sent = allocate(2);
  ASSERT_TRUE(ledger_.hand_over(sent, kOne, kInTransit));
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kTwo, 7));
  ledger_.drop(sent, kInTransit);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(sent)); });
  EXPECT_EQ(ledger_.used_blocks(), 1U);
  recover(memory_.view().pool.header.lock, kTwo);
  ledger_.release(allocate(64), kOne, member_);
}

TEST_F(SlabLedgerTest, a_wait_for_the_lock_ends_when_the_session_is_over) {
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kTwo, 7));
  member_.is_over = true;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(ledger_.allocate(1, kOne, member_)); });
  member_.is_over = false;
  EXPECT_FALSE(ledger_.allocate(1, kOne, member_, Deadline::after({}))) << "a stopped participant holds the lock";
  EXPECT_FALSE(ledger_.usage(member_, Deadline::after({})));
  recover(memory_.view().pool.header.lock, kTwo);
}

// Compares the ledger with a simple model over a long random history.
TEST(SlabLedgerModel, agrees_with_a_simple_model) {
  LedgerMemory memory(ledger_of(256, 128));
  const SlabLedger ledger = memory.ledger();
  const PoolMember member(kOne);
  struct Held {
    LeaseRef lease;
    Owner holder;
    BlockRange range;
  };
  std::vector<Held> held;
  std::mt19937 random(20261115);
  const auto pick = [&](std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random);
  };
  for (int step = 0; step < 20'000; ++step) {
    const auto holder = static_cast<Owner>(1 + pick(5));
    const std::size_t action = pick(4);
    if (action == 0 && held.size() < 128) {
      if (const auto lease = ledger.allocate((1 + pick(20)) * kChunk, holder, member)) {
        held.push_back({*lease, holder, ledger.range_of(*lease)});
      }
    } else if (held.empty()) {
      continue;
    } else if (action == 1 && held.size() < 128) {
      const Held& of = held[pick(held.size())];
      held.push_back({ledger.share(of.lease, holder, member), holder, of.range});
    } else if (action == 2) {
      Held& given = held[pick(held.size())];
      ASSERT_TRUE(ledger.hand_over(given.lease, given.holder, holder));
      given.holder = holder;
    } else {
      const std::size_t which = pick(held.size());
      ledger.release(held[which].lease, held[which].holder, member);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (step % 500 != 0) continue;
    ASSERT_EQ(audit(memory.view()), "");
    for (const Held& one : held) {
      ASSERT_EQ(ledger.range_of(one.lease), one.range);
      ASSERT_EQ(ledger.holder_of(one.lease), one.holder);
    }
  }
}

TEST(SlabLedgerThreads, share_and_release_at_the_same_time) {
  LedgerMemory memory(ledger_of(256, 512));
  const SlabLedger ledger = memory.ledger();
  const PoolMember member(kOne);
  const LeaseRef common = ledger.allocate(kChunk, kOne, member).value();
  std::vector<std::thread> threads;
  for (Owner number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      const PoolMember self(static_cast<Owner>(number + 1));
      for (int round = 0; round < 2000; ++round) {
        const LeaseRef shared = ledger.share(common, self.self(), self);
        const LeaseRef own = ledger.allocate(3 * kChunk, self.self(), self).value();
        ASSERT_EQ(ledger.range_of(shared).offset, 0U);
        ASSERT_TRUE(ledger.hand_over(own, self.self(), kInTransit));
        ledger.release(shared, self.self(), self);
        ledger.adopt(own, self.self());
        ledger.release(own, self.self(), self);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ledger.leases_beside(common), 1U);
  EXPECT_EQ(audit(memory.view()), "");
}

}  // namespace
}  // namespace drover::ipc
