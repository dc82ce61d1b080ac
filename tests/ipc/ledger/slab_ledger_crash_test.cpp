// Ledgers of slabs whose users die at each write of each operation.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ipc/ledger/crash_frame.hpp"
#include "ipc/ledger/ledger_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::audit;
using test::expect_error;
using test::kAlive;
using test::kChunk;
using test::kDead;
using test::kStopped;
using test::leases_of;
using test::ledger_of;
using test::LedgerMemory;
using test::never_sent;
using test::PoolMember;

using PictureOfLedger = test::PicturedSteps<LedgerMemory>;
using PicturedLedger = LedgerCore<PictureOfLedger>;
using LedgerOperation = test::Operation<PicturedLedger>;

void end_at(const PicturedLedger& core, std::uint32_t index) { ASSERT_TRUE(core.end(index, core.at(index))); }

// Cells 0 to 7 are leases on blocks of four chunks, of the dead (even) and the living participant (odd). Cell 8 is
// the living one's lease on the block of cell 0, and cell 9 the dead one's on the block of cell 1.
const std::vector<LedgerOperation>& ledger_operations() {
  static const std::vector<LedgerOperation> all = {
      {"allocate_in_a_fresh_cell", {}, [](const auto& core) { ASSERT_TRUE(core.allocate(3, kDead)); }},
      {"allocate_in_a_used_cell",
       {},
       [](const auto& core) {
         end_at(core, 2);
         ASSERT_TRUE(core.allocate(3, kDead));
       }},
      {"allocate_when_nothing_fits", {}, [](const auto& core) { ASSERT_FALSE(core.allocate(60, kDead)); }},
      {"share_one_of_its_own", {}, [](const auto& core) { ASSERT_TRUE(core.begin(8, kDead).state.is_used); }},
      {"share_a_part", {}, [](const auto& core) { ASSERT_TRUE(core.begin(8, kDead, 3).state.is_used); }},
      {"share_one_of_the_living", {}, [](const auto& core) { ASSERT_TRUE(core.begin(4, kDead).state.is_used); }},
      {"end_the_only_lease_on_a_block", {}, [](const auto& core) { end_at(core, 2); }},
      {"end_one_of_two_leases_on_a_block", {}, [](const auto& core) { end_at(core, 0); }},
      {"end_orphans",
       {},
       [](const auto& core) {
         ASSERT_TRUE(core.orphan(4, core.at(4)));
         ASSERT_TRUE(core.orphan(6, core.at(6)));
         core.end_orphans();
       }},
      {"end_all_in_turn",
       {},
       [](const auto& core) {
         for (const std::uint32_t index : {0U, 2U, 4U, 6U, 9U}) end_at(core, index);
       }},
  };
  return all;
}

class DeathInLedgerOperation : public ::testing::TestWithParam<LedgerOperation> {
 protected:
  void SetUp() override {
    const LedgerCore<> core(memory_.view());
    for (std::uint32_t index = 0; index < 8; ++index) {
      ASSERT_EQ(core.allocate(4, index % 2 == 0 ? kDead : kAlive).value().index, index);
    }
    static_cast<void>(core.begin(0, kAlive));
    static_cast<void>(core.begin(4, kDead));
    ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kDead, 1));
    PictureOfLedger::record(memory_, [&] { GetParam().run(PicturedLedger(memory_.view())); });
  }

  // All leases of the living participant exist and are valid.
  static void expect_usable_by_living(LedgerMemory& picture) {
    const PoolMember alive(kAlive);
    const auto leases = leases_of(picture.view(), kAlive);
    ASSERT_EQ(leases.size(), 5U);
    for (const auto& [index, lease] : leases) {
      picture.ledger().release({.index = index, .generation = lease.generation}, kAlive, alive);
    }
    ASSERT_EQ(audit(picture.view()), "");
  }

  LedgerMemory memory_{ledger_of(64, 16)};
};

TEST_P(DeathInLedgerOperation, a_lease_is_on_a_block_in_use_before_each_write) {
  for (auto& picture : PictureOfLedger::pictures) {
    const LedgerCore<> core(picture.view());
    for (std::uint32_t index = 0; index < 16; ++index) {
      const LeaseState lease = core.at(index);
      ASSERT_TRUE(!lease.is_used || core.checked_block(index, lease.chunk).is_used);
    }
  }
}

TEST_P(DeathInLedgerOperation, all_leases_of_the_dead_end_and_none_of_the_living) {
  for (std::size_t step = 0; step < PictureOfLedger::pictures.size(); ++step) {
    SCOPED_TRACE(fmt::format("killed before write {}", step));
    LedgerMemory& picture = PictureOfLedger::pictures[step];
    picture.ledger().recover(kDead, never_sent);
    ASSERT_EQ(audit(picture.view()), "");
    ASSERT_TRUE(leases_of(picture.view(), kDead).empty());
    expect_usable_by_living(picture);
    ASSERT_EQ(picture.ledger().free_bytes(), 64U * kChunk);
  }
}

TEST_P(DeathInLedgerOperation, leases_in_messages_become_in_transit) {
  const PoolMember alive(kAlive);
  for (auto& picture : PictureOfLedger::pictures) {
    const auto left = leases_of(picture.view(), kDead);
    picture.ledger().recover(kDead, [](LeaseRef) { return true; });
    ASSERT_EQ(audit(picture.view()), "");
    ASSERT_TRUE(leases_of(picture.view(), kDead).empty());
    for (const auto& [index, lease] : left) {
      const LeaseRef sent{.index = index, .generation = lease.generation};
      ASSERT_EQ(picture.ledger().holder_of(sent), kInTransit);
      picture.ledger().adopt(sent, kAlive);
      picture.ledger().release(sent, kAlive, alive);
    }
    expect_usable_by_living(picture);
    ASSERT_EQ(picture.ledger().free_bytes(), 64U * kChunk);
  }
}

TEST_P(DeathInLedgerOperation, recovery_may_be_repeated) {
  for (auto& picture : PictureOfLedger::pictures) {
    picture.ledger().recover(kDead, never_sent);
    const auto once = picture.bytes();
    picture.ledger().recover(kDead, never_sent);
    ASSERT_EQ(picture.bytes(), once);
  }
}

INSTANTIATE_TEST_SUITE_P(SlabLedger, DeathInLedgerOperation, ::testing::ValuesIn(ledger_operations()),
                         [](const auto& operation) { return std::string(operation.param.name); });

// A ledger in which the dead and the living participant share a block, and each have one of their own.
class LedgerRecovery : public ::testing::Test {
 protected:
  PoolMember alive_{kAlive};
  LedgerMemory memory_{ledger_of(64, 16)};
  SlabLedger ledger_ = memory_.ledger();
  LeaseRef common_ = ledger_.allocate(4 * kChunk, kDead, alive_).value();
  LeaseRef shared_ = ledger_.share(common_, kAlive, alive_);
  LeaseRef dead_one_ = ledger_.allocate(4 * kChunk, kDead, alive_).value();
  LeaseRef living_one_ = ledger_.allocate(4 * kChunk, kAlive, alive_).value();
};

TEST_F(LedgerRecovery, a_shared_block_outlives_its_maker) {
  ledger_.recover(kDead, never_sent);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.used_blocks(), 2U);
  EXPECT_EQ(ledger_.range_of(shared_).bytes, 4U * kChunk);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(common_)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(dead_one_)); });
}

TEST_F(LedgerRecovery, only_sent_leases_become_in_transit) {
  ledger_.recover(kDead, [&](LeaseRef lease) { return lease == dead_one_; });
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.holder_of(dead_one_), kInTransit);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(common_)); });
}

TEST_F(LedgerRecovery, leases_that_the_dead_was_sending_end_or_become_in_transit) {
  ASSERT_TRUE(ledger_.hand_over(common_, kDead, sending_by(kDead)));
  ASSERT_TRUE(ledger_.hand_over(dead_one_, kDead, sending_by(kDead)));
  ledger_.recover(kDead, [&](LeaseRef lease) { return lease == dead_one_; });
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.holder_of(dead_one_), kInTransit);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(common_)); });
}

TEST_F(LedgerRecovery, one_corrupt_lease_does_not_keep_the_others_of_the_dead_alive) {
  memory_.view().pool.cells[0].leases = 0;  // of the block of common_
  expect_error(Errc::corrupt, [&] { ledger_.recover(kDead, never_sent); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(common_)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(dead_one_)); });
}

TEST_F(LedgerRecovery, leases_become_orphans_that_the_next_user_ends_while_a_stopped_holder_has_the_lock) {
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kStopped, 1));
  ledger_.recover(kDead, never_sent);
  EXPECT_EQ(ledger_.used_blocks(), 3U);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(dead_one_)); });
  recover(memory_.view().pool.header.lock, kStopped);
  ledger_.release(living_one_, kAlive, alive_);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.used_blocks(), 1U);
}

TEST_F(LedgerRecovery, orphans_end_when_another_participant_dies_in_an_operation) {
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kStopped, 1));
  ledger_.recover(kDead, never_sent);
  ledger_.recover(kStopped, never_sent);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.used_blocks(), 2U);
}

TEST_F(LedgerRecovery, a_lease_that_is_not_on_a_block_ends_and_the_rest_is_intact) {
  memory_.view().cells[living_one_.index].word =
      encode(LeaseState{.is_used = true, .chunk = 63, .holder = kAlive, .generation = living_one_.generation});
  expect_error(Errc::corrupt, [&] { static_cast<void>(ledger_.range_of(living_one_)); });
  expect_error(Errc::corrupt, [&] { ledger_.release(living_one_, kAlive, alive_); });
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kDead, 1));
  ledger_.recover(kDead, never_sent);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.used_blocks(), 1U);
}

TEST_F(LedgerRecovery, invalid_links_are_reported_as_corrupt) {
  memory_.view().header.free = 1'000'000;
  expect_error(Errc::corrupt, [&] { static_cast<void>(ledger_.share(shared_, kAlive, alive_)); }, {"corrupt"});
  memory_.view().header.free = kNoLink;
  memory_.view().header.orphans = 1'000'000;
  expect_error(Errc::corrupt, [&] { static_cast<void>(ledger_.share(shared_, kAlive, alive_)); },
               {"listed as an orphan"});
  memory_.view().header.fresh = 1'000'000;
  memory_.view().pool.cells[0].leases = 0;
  expect_error(Errc::corrupt, [&] { ledger_.release(shared_, kAlive, alive_); }, {"no leases"});
}

}  // namespace
}  // namespace drover::ipc
