// Block pools whose users die at each write of each operation.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ipc/ledger/crash_frame.hpp"
#include "ipc/ledger/pool_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::audit;
using test::chunks;
using test::expect_error;
using test::kAlive;
using test::kChunk;
using test::kDead;
using test::kStopped;
using test::never_referenced;
using test::PoolMember;
using test::PoolMemory;
using test::tiling_of;

using PictureOfPool = test::PicturedSteps<PoolMemory>;
using PicturedPool = BlockPoolCore<PictureOfPool>;
using PoolOperation = test::Operation<PicturedPool>;

void free_at(const PicturedPool& core, std::uint32_t chunk) { ASSERT_TRUE(core.free(chunk, core.checked(chunk))); }

void take(const PicturedPool& core, std::uint32_t length) { ASSERT_TRUE(core.allocate(length, kDead)); }

// Chunks 0 to 63 are blocks of four chunks; those at 0, 8, ... belong to the living participant, the others to the
// dead one.
const std::vector<PoolOperation>& pool_operations() {
  static const std::vector<PoolOperation> all = {
      {"allocate_the_front_of_a_free_piece", {12}, [](const auto& core) { take(core, 3); }},
      {"allocate_a_free_piece_that_fits", {12}, [](const auto& core) { take(core, 4); }},
      {"allocate_one_of_several_that_fit", {12, 28, 44}, [](const auto& core) { take(core, 4); }},
      {"allocate_what_two_blocks_were", {12, 16}, [](const auto& core) { take(core, 7); }},
      {"allocate_when_nothing_fits", {12, 28}, [](const auto& core) { ASSERT_FALSE(core.allocate(5, kDead)); }},
      {"free_between_blocks", {28}, [](const auto& core) { free_at(core, 12); }},
      {"free_behind_a_free_piece", {8}, [](const auto& core) { free_at(core, 12); }},
      {"free_before_a_free_piece", {16}, [](const auto& core) { free_at(core, 12); }},
      {"free_between_free_pieces", {8, 16}, [](const auto& core) { free_at(core, 12); }},
      {"free_between_free_pieces_of_one_list", {8, 16, 24, 32}, [](const auto& core) { free_at(core, 12); }},
      {"free_the_last_block", {}, [](const auto& core) { free_at(core, 60); }},
      {"free_all_blocks_in_turn",
       {},
       [](const auto& core) {
         for (std::uint32_t chunk = 4; chunk < 64; chunk += 8) free_at(core, chunk);
       }},
  };
  return all;
}

class DeathInPoolOperation : public ::testing::TestWithParam<PoolOperation> {
 protected:
  void SetUp() override {
    const BlockPoolCore<> core(memory_.view());
    for (std::uint32_t chunk = 0; chunk < 64; chunk += 4) {
      ASSERT_EQ(core.allocate(4, chunk % 8 == 0 ? kAlive : kDead).value().chunk, chunk);
    }
    for (const std::uint32_t chunk : GetParam().freed_before) ASSERT_TRUE(core.free(chunk, core.checked(chunk)));
    ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
    PictureOfPool::record(memory_, [&] { GetParam().run(PicturedPool(memory_.view())); });
  }

  // The blocks of an owner, by chunk.
  static std::map<std::uint32_t, Extent> blocks_of(const PoolView& view, Owner owner) {
    std::map<std::uint32_t, Extent> blocks;
    for (const auto& [chunk, extent] : tiling_of(view)) {
      if (extent.is_used && extent.owner == owner) blocks[chunk] = extent;
    }
    return blocks;
  }

  PoolMemory memory_{chunks(64)};
};

TEST_P(DeathInPoolOperation, the_tiling_holds_before_each_write) {
  for (auto& picture : PictureOfPool::pictures) {
    ASSERT_NE(tiling_of(picture.view()).back().extent.length, 0U);
  }
}

TEST_P(DeathInPoolOperation, everything_of_the_dead_is_freed_and_nothing_of_the_living) {
  const PoolMember alive(kAlive);
  for (std::size_t step = 0; step < PictureOfPool::pictures.size(); ++step) {
    SCOPED_TRACE(fmt::format("killed before write {}", step));
    PoolMemory& picture = PictureOfPool::pictures[step];
    const auto kept = blocks_of(picture.view(), kAlive);
    picture.pool().recover(kDead, never_referenced);
    ASSERT_EQ(audit(picture.view()), "");
    ASSERT_TRUE(blocks_of(picture.view(), kDead).empty());
    ASSERT_EQ(blocks_of(picture.view(), kAlive), kept);
    for (const auto& [chunk, extent] : kept) {
      picture.pool().free({.chunk = chunk, .generation = extent.generation}, kAlive, alive);
    }
    ASSERT_EQ(picture.pool().usage(alive).largest_free_bytes, 64U * kChunk);
  }
}

TEST_P(DeathInPoolOperation, referenced_blocks_survive) {
  const PoolMember alive(kAlive);
  for (auto& picture : PictureOfPool::pictures) {
    const auto left = blocks_of(picture.view(), kDead);
    picture.pool().recover(kDead, [](BlockRef) { return true; });
    ASSERT_EQ(audit(picture.view()), "");
    ASSERT_EQ(blocks_of(picture.view(), kDead), left);
    for (const auto& [chunk, extent] : left) {
      const BlockRef block{.chunk = chunk, .generation = extent.generation};
      picture.pool().adopt(block, kAlive);
      picture.pool().free(block, kAlive, alive);
    }
    ASSERT_EQ(audit(picture.view()), "");
  }
}

TEST_P(DeathInPoolOperation, recovery_may_be_repeated) {
  for (auto& picture : PictureOfPool::pictures) {
    picture.pool().recover(kDead, never_referenced);
    const auto once = picture.bytes();
    picture.pool().recover(kDead, never_referenced);
    ASSERT_EQ(picture.bytes(), once);
  }
}

INSTANTIATE_TEST_SUITE_P(BlockPool, DeathInPoolOperation, ::testing::ValuesIn(pool_operations()),
                         [](const auto& operation) { return std::string(operation.param.name); });

// A pool of 64 chunks in which the dead and the living participant alternately have four blocks each.
class BlockPoolRecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int round = 0; round < 4; ++round) {
      left_.push_back(pool_.allocate(4 * kChunk, kDead, alive_).value());
      kept_.push_back(pool_.allocate(4 * kChunk, kAlive, alive_).value());
    }
  }
  void expect_only_living_blocks() {
    EXPECT_EQ(pool_.usage(alive_).owner_bytes, (std::map<Owner, std::uint64_t>{{kAlive, 16U * kChunk}}));
    EXPECT_EQ(audit(memory_.view()), "");
  }

  PoolMember alive_{kAlive};
  PoolMemory memory_{chunks(64)};
  BlockPool pool_ = memory_.pool();
  std::vector<BlockRef> left_;
  std::vector<BlockRef> kept_;
};

TEST_F(BlockPoolRecoveryTest, blocks_of_a_death_outside_operations_are_freed) {
  pool_.recover(kDead, never_referenced);
  expect_only_living_blocks();
  for (const auto block : left_) expect_error(Errc::corrupt, [&] { pool_.adopt(block, kAlive); });
}

TEST_F(BlockPoolRecoveryTest, a_death_without_blocks_changes_nothing) {
  const auto before = memory_.bytes().substr(sizeof(CellLockLayout));
  pool_.recover(kStopped, never_referenced);
  EXPECT_EQ(memory_.bytes().substr(sizeof(CellLockLayout)), before);
}

TEST_F(BlockPoolRecoveryTest, only_referenced_blocks_survive) {
  pool_.recover(kDead, [&](BlockRef block) { return block == left_[1]; });
  EXPECT_EQ(pool_.owner_of(left_[1]), kDead);
  pool_.adopt(left_[1], kAlive);
  pool_.free(left_[1], kAlive, alive_);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, a_block_adopted_during_recovery_belongs_to_its_new_owner) {
  pool_.recover(kDead, [&](BlockRef block) {
    if (block == left_[2]) pool_.adopt(block, kAlive);
    return false;
  });
  EXPECT_EQ(pool_.owner_of(left_[2]), kAlive);
  pool_.free(left_[2], kAlive, alive_);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, free_neighbours_of_a_block_adopted_during_recovery_stay_free) {
  pool_.free(kept_[1], kAlive, alive_);
  pool_.free(kept_[2], kAlive, alive_);
  pool_.recover(kDead, [&](BlockRef block) {
    if (block == left_[2]) pool_.adopt(block, kAlive);
    return false;
  });
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(pool_.usage(alive_).owner_bytes, (std::map<Owner, std::uint64_t>{{kAlive, 12U * kChunk}}));
}

TEST_F(BlockPoolRecoveryTest, the_lock_is_freed_even_if_the_callback_throws) {
  const auto fail = [](BlockRef) -> bool { throw std::runtime_error("no answer"); };
  EXPECT_THROW(pool_.recover(kDead, fail), std::runtime_error);
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
  EXPECT_THROW(pool_.recover(kDead, fail), std::runtime_error);
  EXPECT_EQ(audit(memory_.view()), "");
  pool_.recover(kDead, never_referenced);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, a_waiter_gets_the_lock_of_the_dead) {
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
  std::jthread waiter([&] { EXPECT_TRUE(pool_.allocate(4 * kChunk, kAlive, alive_)); });
  pool_.recover(kDead, never_referenced);
  waiter.join();
  EXPECT_EQ(pool_.usage(alive_).owner_bytes[kAlive], 20U * kChunk);
}

TEST_F(BlockPoolRecoveryTest, does_not_wait_for_a_stopped_holder) {
  const PoolMember stopped(kStopped);
  {
    const CellGuard guard(memory_.view().header.lock, stopped);
    pool_.recover(kDead, [&](BlockRef block) { return block == left_[3]; });
    for (const auto block : {left_[0], left_[1], left_[2]}) {
      expect_error(Errc::corrupt, [&] { static_cast<void>(pool_.offset_of(block)); });
    }
    EXPECT_EQ(pool_.owner_of(left_[3]), kDead);
    EXPECT_EQ(pool_.owner_of(kept_[3]), kAlive);
  }
  pool_.adopt(left_[3], kAlive);
  pool_.free(left_[3], kAlive, alive_);  // the next user of the pool frees the orphans
  EXPECT_EQ(audit(memory_.view()), "");
  expect_only_living_blocks();
}

// Uses the pool under a lock that it never frees, until `is_over`.
void change_tiling(const PoolView& view, std::atomic<int>& changes, const std::atomic<bool>& is_over) {
  const BlockPoolCore<> core(view);
  std::minstd_rand random(1);
  std::vector<std::uint32_t> blocks;
  for (; !is_over; ++changes) {
    const auto block = core.allocate(1 + random() % 8, kStopped);
    if (block) blocks.push_back(block->chunk);
    if (blocks.empty() || (block && random() % 2 == 0)) continue;
    std::swap(blocks.at(random() % blocks.size()), blocks.back());
    EXPECT_TRUE(core.free(blocks.back(), core.checked(blocks.back())));
    blocks.pop_back();
  }
}

// Fills a pool with blocks of many owners; those from kFirstDead on die.
constexpr Owner kFirstDead = 100;
constexpr Owner kEndOfDead = 140;
void fill(const BlockPool& pool, const PoolMember& alive, std::minstd_rand& random) {
  std::vector<BlockRef> passing;
  while (const auto block = pool.allocate((1 + random() % 8) * kChunk, kAlive, alive)) {
    if (random() % 3 == 0) {
      pool.adopt(*block, static_cast<Owner>(kFirstDead + random() % (kEndOfDead - kFirstDead)));
    } else {
      passing.push_back(*block);
    }
  }
  for (const auto block : passing) pool.free(block, kAlive, alive);
}

TEST(BlockPoolRecovery, finds_all_blocks_of_the_dead_in_a_tiling_that_changes) {
  const PoolMember alive(kAlive);
  std::minstd_rand random(1);
  for (int round = 0; round < 5; ++round) {
    PoolMemory memory(chunks(2048));
    fill(memory.pool(), alive, random);
    ASSERT_TRUE(try_lock(memory.view().header.lock, kStopped, 1));
    std::atomic<int> changes = 0;
    std::atomic<bool> is_over = false;
    std::jthread user([&] { change_tiling(memory.view(), changes, is_over); });
    for (Owner dead = kFirstDead; dead < kEndOfDead; ++dead) {
      for (const int before = changes; changes == before;) std::this_thread::yield();
      memory.pool().recover(dead, never_referenced);
    }
    is_over = true;
    user.join();
    for (const auto& placed : tiling_of(memory.view())) ASSERT_LT(placed.extent.owner, kFirstDead);
    memory.pool().recover(kStopped, never_referenced);
    ASSERT_EQ(audit(memory.view()), "");
    ASSERT_EQ(memory.pool().free_bytes(), 2048U * kChunk);
  }
}

TEST_F(BlockPoolRecoveryTest, recovery_of_a_dead_holder_frees_the_orphans_left_to_it) {
  pool_.free(kept_[1], kAlive, alive_);  // so that orphans lie on both sides of a free extent
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kStopped, 1));
  pool_.recover(kDead, never_referenced);
  EXPECT_NE(audit(memory_.view()), "");
  pool_.recover(kStopped, never_referenced);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(pool_.usage(alive_).owner_bytes, (std::map<Owner, std::uint64_t>{{kAlive, 12U * kChunk}}));
}

TEST_F(BlockPoolRecoveryTest, a_participant_that_frees_orphans_may_die_at_each_write) {
  const CellLockLayout& lock = memory_.view().header.lock;
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kStopped, 1));
  pool_.recover(kDead, never_referenced);
  PictureOfPool::record(memory_, [&] { EXPECT_TRUE(PicturedPool(memory_.view()).allocate(30, kStopped)); });
  EXPECT_GT(PictureOfPool::pictures.size(), 20U);
  EXPECT_EQ(holder_of(lock), kStopped);
  for (auto& picture : PictureOfPool::pictures) {
    picture.pool().recover(kStopped, never_referenced);
    ASSERT_EQ(audit(picture.view()), "");
    ASSERT_EQ(picture.pool().free_bytes(), 48U * kChunk);
  }
  pool_.recover(kStopped, never_referenced);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, all_derived_state_is_recomputed_from_the_words) {
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
  const PoolView view = memory_.view();
  view.header.free_chunks = view.header.used_blocks = view.header.rows = 12345;
  for (auto& columns : view.header.columns) columns = 54321;
  for (auto& row : view.header.heads) {
    for (auto& head : row) head = 77;
  }
  for (std::uint32_t chunk = 0; chunk < view.chunks; ++chunk) {
    view.cells[chunk].next = view.cells[chunk].previous = view.cells[chunk].free_before = chunk + 3;
  }
  pool_.recover(kDead, never_referenced);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, the_part_before_a_corrupt_word_stays_usable) {
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
  memory_.view().cells[kept_[2].chunk].word = 0;
  expect_error(Errc::corrupt, [&] { pool_.recover(kDead, never_referenced); });
  EXPECT_EQ(holder_of(memory_.view().header.lock), kNobody);
  EXPECT_TRUE(pool_.allocate(4 * kChunk, kAlive, alive_));
  EXPECT_FALSE(pool_.allocate(20 * kChunk, kAlive, alive_));
}

}  // namespace
}  // namespace drover::ipc
