// Block pools whose users die, at each write of each operation.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ipc/ledger/pool_support.hpp"
#include "support/expect_error.hpp"

namespace drover {
namespace {

using test::audit;
using test::chunks;
using test::expect_error;
using test::kChunk;
using test::never_referenced;
using test::PoolMember;
using test::PoolMemory;
using test::tiling_of;

constexpr Owner kDead = 5;
constexpr Owner kAlive = 6;
constexpr Owner kStopped = 7;

// Keeps a picture of the state before each write: what shared memory holds if the process is killed there.
struct PicturedSteps {
  static void before_write() {
    if (memory != nullptr) pictures.push_back(*memory);
  }
  static inline PoolMemory* memory = nullptr;
  static inline std::vector<PoolMemory> pictures;
};
using PicturedCore = PoolCore<PicturedSteps>;

// One operation of the participant that dies in it. Chunks 0 to 63 are blocks of four, of two owners by turns: those
// at 0, 8, ... belong to the living one.
struct Operation {
  const char* name;
  std::vector<std::uint32_t> freed_before;  // blocks of the dead one, and of the living one, freed before it
  std::function<void(const PicturedCore&)> run;
};

void PrintTo(const Operation& operation, std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest
  *out << operation.name;
}

void free_at(const PicturedCore& core, std::uint32_t chunk) { ASSERT_TRUE(core.free(chunk, core.checked(chunk))); }

void take(const PicturedCore& core, std::uint32_t length) { ASSERT_TRUE(core.allocate(length, kDead)); }

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
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

class DeathInPoolOperation : public ::testing::TestWithParam<Operation> {
 protected:
  // Runs the operation under the lock of the dead, who never frees it.
  void SetUp() override {
    const PoolCore<> core(memory_.view());
    for (std::uint32_t chunk = 0; chunk < 64; chunk += 4) {
      ASSERT_EQ(core.allocate(4, chunk % 8 == 0 ? kAlive : kDead).value().chunk, chunk);
    }
    for (const std::uint32_t chunk : GetParam().freed_before) ASSERT_TRUE(core.free(chunk, core.checked(chunk)));
    ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
    PicturedSteps::pictures.clear();
    PicturedSteps::memory = &memory_;
    GetParam().run(PicturedCore(memory_.view()));
    PicturedSteps::memory = nullptr;
    PicturedSteps::pictures.push_back(memory_);  // between the last write and the end of the lock
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
  for (auto& picture : PicturedSteps::pictures) {
    ASSERT_NE(tiling_of(picture.view()).back().extent.length, 0U);
  }
}

TEST_P(DeathInPoolOperation, everything_of_the_dead_is_freed_and_nothing_of_the_living) {
  const PoolMember alive(kAlive);
  for (std::size_t step = 0; step < PicturedSteps::pictures.size(); ++step) {
    SCOPED_TRACE(fmt::format("killed before write {}", step));
    PoolMemory& picture = PicturedSteps::pictures[step];
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

TEST_P(DeathInPoolOperation, what_others_still_reach_lives_on) {
  const PoolMember alive(kAlive);
  for (auto& picture : PicturedSteps::pictures) {
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
  for (auto& picture : PicturedSteps::pictures) {
    picture.pool().recover(kDead, never_referenced);
    const auto once = picture.bytes();
    picture.pool().recover(kDead, never_referenced);
    ASSERT_EQ(picture.bytes(), once);
  }
}

INSTANTIATE_TEST_SUITE_P(BlockPool, DeathInPoolOperation, ::testing::ValuesIn(operations()),
                         [](const auto& operation) { return std::string(operation.param.name); });

// A pool of 64 chunks in which the dead and the living one have four blocks each, by turns from chunk 0 on.
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

TEST_F(BlockPoolRecoveryTest, who_dies_outside_of_operations_leaves_its_blocks) {
  pool_.recover(kDead, never_referenced);
  expect_only_living_blocks();
  for (const auto block : left_) expect_error(Errc::corrupt, [&] { pool_.adopt(block, kAlive); });
}

TEST_F(BlockPoolRecoveryTest, who_dies_without_blocks_changes_nothing) {
  const auto before = memory_.bytes().substr(sizeof(CellLockLayout));
  pool_.recover(kStopped, never_referenced);
  EXPECT_EQ(memory_.bytes().substr(sizeof(CellLockLayout)), before);
}

TEST_F(BlockPoolRecoveryTest, only_what_is_referenced_lives_on) {
  pool_.recover(kDead, [&](BlockRef block) { return block == left_[1]; });
  EXPECT_EQ(pool_.owner_of(left_[1]), kDead);
  pool_.adopt(left_[1], kAlive);
  pool_.free(left_[1], kAlive, alive_);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, a_block_taken_over_during_recovery_belongs_to_who_took_it) {
  pool_.recover(kDead, [&](BlockRef block) {
    if (block == left_[2]) pool_.adopt(block, kAlive);
    return false;
  });
  EXPECT_EQ(pool_.owner_of(left_[2]), kAlive);
  pool_.free(left_[2], kAlive, alive_);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, free_neighbours_of_a_block_taken_over_during_recovery_stay_free) {
  pool_.free(kept_[1], kAlive, alive_);
  pool_.free(kept_[2], kAlive, alive_);
  pool_.recover(kDead, [&](BlockRef block) {
    if (block == left_[2]) pool_.adopt(block, kAlive);
    return false;
  });
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(pool_.usage(alive_).owner_bytes, (std::map<Owner, std::uint64_t>{{kAlive, 12U * kChunk}}));
}

TEST_F(BlockPoolRecoveryTest, the_lock_is_free_again_even_if_the_question_fails) {
  const auto fail = [](BlockRef) -> bool { throw std::runtime_error("no answer"); };
  EXPECT_THROW(pool_.recover(kDead, fail), std::runtime_error);
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
  EXPECT_THROW(pool_.recover(kDead, fail), std::runtime_error);
  EXPECT_EQ(audit(memory_.view()), "");
  pool_.recover(kDead, never_referenced);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, who_waits_for_the_lock_of_the_dead_gets_it) {
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
  std::jthread waiter([&] { EXPECT_TRUE(pool_.allocate(4 * kChunk, kAlive, alive_)); });
  pool_.recover(kDead, never_referenced);
  waiter.join();
  EXPECT_EQ(pool_.usage(alive_).owner_bytes[kAlive], 20U * kChunk);
}

TEST_F(BlockPoolRecoveryTest, does_not_wait_for_a_holder_that_stands_still) {
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
  pool_.free(left_[3], kAlive, alive_);  // the next user of the pool frees what was left to it
  EXPECT_EQ(audit(memory_.view()), "");
  expect_only_living_blocks();
}

// Uses the pool under a lock that it never frees, until told to stop.
void change_tiling(const PoolView& view, std::atomic<int>& changes, const std::atomic<bool>& is_over) {
  const PoolCore<> core(view);
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

// Fills a pool with blocks of many, of whom those from kFirstDead on die.
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

TEST_F(BlockPoolRecoveryTest, a_holder_that_dies_too_takes_what_was_left_to_it_along) {
  pool_.free(kept_[1], kAlive, alive_);  // so that what is left to it lies on both sides of a free piece
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kStopped, 1));
  pool_.recover(kDead, never_referenced);
  EXPECT_NE(audit(memory_.view()), "");
  pool_.recover(kStopped, never_referenced);
  EXPECT_EQ(audit(memory_.view()), "");
  EXPECT_EQ(pool_.usage(alive_).owner_bytes, (std::map<Owner, std::uint64_t>{{kAlive, 12U * kChunk}}));
}

TEST_F(BlockPoolRecoveryTest, who_frees_what_was_left_to_it_may_die_at_each_write) {
  const CellLockLayout& lock = memory_.view().header.lock;
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kStopped, 1));
  pool_.recover(kDead, never_referenced);
  PicturedSteps::pictures.clear();
  PicturedSteps::memory = &memory_;
  EXPECT_TRUE(PicturedCore(memory_.view()).allocate(30, kStopped));
  PicturedSteps::memory = nullptr;
  EXPECT_GT(PicturedSteps::pictures.size(), 20U);
  EXPECT_EQ(holder_of(lock), kStopped);
  for (auto& picture : PicturedSteps::pictures) {
    picture.pool().recover(kStopped, never_referenced);
    ASSERT_EQ(audit(picture.view()), "");
    ASSERT_EQ(picture.pool().free_bytes(), 48U * kChunk);
  }
  pool_.recover(kStopped, never_referenced);
  expect_only_living_blocks();
}

TEST_F(BlockPoolRecoveryTest, all_that_is_derived_is_made_anew_from_the_words) {
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

TEST_F(BlockPoolRecoveryTest, what_lies_before_a_spoiled_word_can_still_be_used) {
  ASSERT_TRUE(try_lock(memory_.view().header.lock, kDead, 1));
  memory_.view().cells[kept_[2].chunk].word = 0;
  expect_error(Errc::corrupt, [&] { pool_.recover(kDead, never_referenced); });
  EXPECT_EQ(holder_of(memory_.view().header.lock), kNobody);
  EXPECT_TRUE(pool_.allocate(4 * kChunk, kAlive, alive_));
  EXPECT_FALSE(pool_.allocate(20 * kChunk, kAlive, alive_));
}

}  // namespace
}  // namespace drover
