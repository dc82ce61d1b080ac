// Ledgers of slabs whose users die, at each write of each operation.
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ipc/ledger/ledger_support.hpp"
#include "support/expect_error.hpp"

namespace drover {
namespace {

using test::audit;
using test::expect_error;
using test::kChunk;
using test::leases_of;
using test::ledger_of;
using test::LedgerMemory;
using test::never_sent;
using test::PoolMember;

constexpr Owner kDead = 5;
constexpr Owner kAlive = 6;
constexpr Owner kStopped = 7;

// Keeps a picture of the state before each write: what shared memory holds if the process is killed there.
struct PicturedSteps {
  static void before_write() {
    if (memory != nullptr) pictures.push_back(*memory);
  }
  static inline LedgerMemory* memory = nullptr;
  static inline std::vector<LedgerMemory> pictures;
};
using PicturedLedger = LedgerCore<PicturedSteps>;

// One operation of the participant that dies in it. Cells 0 to 7 are leases on blocks of four chunks, of the dead
// (even) and of the living one (odd); 8 is the living one's lease on block 0 and 9 the dead one's on the block of 1.
struct Operation {
  const char* name;
  std::function<void(const PicturedLedger&)> run;
};

void PrintTo(const Operation& operation, std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest
  *out << operation.name;
}

void end_at(const PicturedLedger& core, std::uint32_t index) { ASSERT_TRUE(core.end(index, core.at(index))); }

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"allocate_in_a_fresh_cell", [](const auto& core) { ASSERT_TRUE(core.allocate(3, kDead)); }},
      {"allocate_in_a_used_cell",
       [](const auto& core) {
         end_at(core, 2);
         ASSERT_TRUE(core.allocate(3, kDead));
       }},
      {"allocate_when_nothing_fits", [](const auto& core) { ASSERT_FALSE(core.allocate(60, kDead)); }},
      {"share_one_of_its_own", [](const auto& core) { ASSERT_TRUE(core.begin(8, kDead).state.is_used); }},
      {"share_one_of_the_living", [](const auto& core) { ASSERT_TRUE(core.begin(4, kDead).state.is_used); }},
      {"end_the_only_lease_on_a_block", [](const auto& core) { end_at(core, 2); }},
      {"end_one_of_two_leases_on_a_block", [](const auto& core) { end_at(core, 0); }},
      {"end_orphans",
       [](const auto& core) {
         ASSERT_TRUE(core.orphan(4, core.at(4)));
         ASSERT_TRUE(core.orphan(6, core.at(6)));
         core.end_orphans();
       }},
      {"end_all_in_turn",
       [](const auto& core) {
         for (const std::uint32_t index : {0U, 2U, 4U, 6U, 9U}) end_at(core, index);
       }},
  };
  return all;
}

class DeathInLedgerOperation : public ::testing::TestWithParam<Operation> {
 protected:
  // Runs the operation under the lock of the dead, who never frees it.
  void SetUp() override {
    const LedgerCore<> core(memory_.view());
    for (std::uint32_t index = 0; index < 8; ++index) {
      ASSERT_EQ(core.allocate(4, index % 2 == 0 ? kDead : kAlive).value().index, index);
    }
    static_cast<void>(core.begin(0, kAlive));
    static_cast<void>(core.begin(4, kDead));
    ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kDead, 1));
    PicturedSteps::pictures.clear();
    PicturedSteps::memory = &memory_;
    GetParam().run(PicturedLedger(memory_.view()));
    PicturedSteps::memory = nullptr;
    PicturedSteps::pictures.push_back(memory_);  // between the last write and the end of the lock
  }

  // The living one's leases are all there and good.
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
  for (auto& picture : PicturedSteps::pictures) {
    const LedgerCore<> core(picture.view());
    for (std::uint32_t index = 0; index < 16; ++index) {
      const LeaseState lease = core.at(index);
      ASSERT_TRUE(!lease.is_used || core.checked_block(index, lease.chunk).is_used);
    }
  }
}

TEST_P(DeathInLedgerOperation, all_leases_of_the_dead_end_and_none_of_the_living) {
  for (std::size_t step = 0; step < PicturedSteps::pictures.size(); ++step) {
    SCOPED_TRACE(fmt::format("killed before write {}", step));
    LedgerMemory& picture = PicturedSteps::pictures[step];
    picture.ledger().recover(kDead, never_sent);
    ASSERT_EQ(audit(picture.view()), "");
    ASSERT_TRUE(leases_of(picture.view(), kDead).empty());
    expect_usable_by_living(picture);
    ASSERT_EQ(picture.ledger().free_bytes(), 64U * kChunk);
  }
}

TEST_P(DeathInLedgerOperation, what_messages_refer_to_is_in_transit) {
  const PoolMember alive(kAlive);
  for (auto& picture : PicturedSteps::pictures) {
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
  for (auto& picture : PicturedSteps::pictures) {
    picture.ledger().recover(kDead, never_sent);
    const auto once = picture.bytes();
    picture.ledger().recover(kDead, never_sent);
    ASSERT_EQ(picture.bytes(), once);
  }
}

INSTANTIATE_TEST_SUITE_P(SlabLedger, DeathInLedgerOperation, ::testing::ValuesIn(operations()),
                         [](const auto& operation) { return std::string(operation.param.name); });

// A ledger in which the dead and the living one have a lease each on one block, and one of their own.
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

TEST_F(LedgerRecovery, only_what_was_sent_is_in_transit) {
  ledger_.recover(kDead, [&](LeaseRef lease) { return lease == dead_one_; });
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.holder_of(dead_one_), kInTransit);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(common_)); });
}

TEST_F(LedgerRecovery, what_the_dead_was_about_to_send_ends_or_is_in_transit) {
  ASSERT_TRUE(ledger_.hand_over(common_, kDead, sending_by(kDead)));
  ASSERT_TRUE(ledger_.hand_over(dead_one_, kDead, sending_by(kDead)));
  ledger_.recover(kDead, [&](LeaseRef lease) { return lease == dead_one_; });
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.holder_of(dead_one_), kInTransit);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(common_)); });
}

TEST_F(LedgerRecovery, one_spoilt_lease_does_not_keep_the_others_of_the_dead) {
  memory_.view().pool.cells[0].leases = 0;  // of the block of common_
  expect_error(Errc::corrupt, [&] { ledger_.recover(kDead, never_sent); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(common_)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(dead_one_)); });
}

TEST_F(LedgerRecovery, while_another_stands_still_leases_become_orphans_that_the_next_user_ends) {
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kStopped, 1));
  ledger_.recover(kDead, never_sent);
  EXPECT_EQ(ledger_.used_blocks(), 3U);
  expect_error(Errc::not_found, [&] { static_cast<void>(ledger_.range_of(dead_one_)); });
  recover(memory_.view().pool.header.lock, kStopped);
  ledger_.release(living_one_, kAlive, alive_);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.used_blocks(), 1U);
}

TEST_F(LedgerRecovery, orphans_of_one_are_ended_when_another_is_found_dead_in_an_operation) {
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kStopped, 1));
  ledger_.recover(kDead, never_sent);
  ledger_.recover(kStopped, never_sent);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.used_blocks(), 2U);
}

TEST_F(LedgerRecovery, a_lease_on_what_is_no_block_ends_and_the_rest_is_whole) {
  memory_.view().cells[living_one_.index].word =
      encode(LeaseState{.is_used = true, .chunk = 63, .holder = kAlive, .generation = living_one_.generation});
  expect_error(Errc::corrupt, [&] { static_cast<void>(ledger_.range_of(living_one_)); });
  expect_error(Errc::corrupt, [&] { ledger_.release(living_one_, kAlive, alive_); });
  ASSERT_TRUE(try_lock(memory_.view().pool.header.lock, kDead, 1));
  ledger_.recover(kDead, never_sent);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(ledger_.used_blocks(), 1U);
}

TEST_F(LedgerRecovery, spoilt_links_are_corrupt_and_no_crash) {
  memory_.view().header.free = 1'000'000;
  expect_error(Errc::corrupt, [&] { static_cast<void>(ledger_.share(shared_, kAlive, alive_)); }, {"spoiled"});
  memory_.view().header.free = kNoLink;
  memory_.view().header.orphans = 1'000'000;
  expect_error(Errc::corrupt, [&] { static_cast<void>(ledger_.share(shared_, kAlive, alive_)); },
               {"waits to be ended"});
  memory_.view().header.fresh = 1'000'000;
  memory_.view().pool.cells[0].leases = 0;
  expect_error(Errc::corrupt, [&] { ledger_.release(shared_, kAlive, alive_); }, {"no leases"});
}

}  // namespace
}  // namespace drover
