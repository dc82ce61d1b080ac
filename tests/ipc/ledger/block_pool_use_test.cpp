// Block pools in use: compared with a model, by several threads, and in memory that is corrupted meanwhile.
#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ipc/ledger/pool_support.hpp"

namespace drover::ipc {
namespace {

using test::audit;
using test::chunks;
using test::kChunk;
using test::PoolMember;
using test::PoolMemory;

constexpr Owner kUser = 7;
constexpr Owner kOtherUser = 1023;

// A simple model of a pool.
class Model {
 public:
  explicit Model(std::uint32_t chunk_number) : chunks_(chunk_number) {}

  // The longest free run, and whether one of at least `length` starts at `chunk`.
  [[nodiscard]] std::map<std::uint32_t, std::uint32_t> free_runs() const {
    std::map<std::uint32_t, std::uint32_t> runs;
    std::uint32_t at = 0;
    for (const auto& [chunk, length] : used_) {
      if (chunk > at) runs[at] = chunk - at;
      at = chunk + length;
    }
    if (at < chunks_) runs[at] = chunks_ - at;
    return runs;
  }
  void expect_allocated(const std::optional<BlockRef>& block, std::uint32_t length) {
    std::uint32_t longest = 0;
    const auto runs = free_runs();
    for (const auto& [chunk, run] : runs) longest = std::max(longest, run);
    ASSERT_EQ(block.has_value(), longest >= length) << length << " of " << longest;
    if (!block) return;
    const auto run = runs.find(block->chunk);
    ASSERT_TRUE(run != runs.end() && run->second >= length);
    used_[block->chunk] = length;
  }
  void freed(BlockRef block) { ASSERT_EQ(used_.erase(block.chunk), 1U); }

 private:
  std::uint32_t chunks_;
  std::map<std::uint32_t, std::uint32_t> used_;
};

struct RandomShape {
  std::uint32_t chunks;
  std::uint32_t longest;
};

class RandomPoolUse : public ::testing::TestWithParam<RandomShape> {};

TEST_P(RandomPoolUse, agrees_with_a_model) {
  PoolMemory memory(chunks(GetParam().chunks));
  const BlockPool pool = memory.pool();
  const PoolMember me(kUser);
  Model model(GetParam().chunks);
  std::vector<BlockRef> blocks;
  std::mt19937 random(GetParam().chunks);
  const auto below = [&](std::size_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  for (int round = 0; round < 3000; ++round) {
    // Alternately fills and empties, so that full, fragmented and empty pools all occur.
    if (below(100) < (round / 300 % 2 == 0 ? 65U : 35U) || blocks.empty()) {
      const std::uint32_t length = 1 + below(1 + below(GetParam().longest));
      const auto block = pool.allocate(std::uint64_t{length} * kChunk - below(kChunk), kUser, me);
      ASSERT_NO_FATAL_FAILURE(model.expect_allocated(block, length));
      if (block) blocks.push_back(*block);
    } else {
      std::swap(blocks.at(below(blocks.size())), blocks.back());
      pool.free(blocks.back(), kUser, me);
      ASSERT_NO_FATAL_FAILURE(model.freed(blocks.back()));
      blocks.pop_back();
    }
    if (round % (GetParam().chunks > 10'000 ? 500 : 50) == 0) {
      ASSERT_EQ(audit(memory.view()), "");
    }
  }
  for (const auto block : blocks) pool.free(block, kUser, me);
  EXPECT_EQ(audit(memory.view()), "");
  EXPECT_EQ(pool.usage(me).largest_free_bytes, std::uint64_t{GetParam().chunks} * kChunk);
}

INSTANTIATE_TEST_SUITE_P(BlockPool, RandomPoolUse,
                         ::testing::Values(RandomShape{1, 1}, RandomShape{2, 2}, RandomShape{17, 5},
                                           RandomShape{64, 64}, RandomShape{1000, 200}, RandomShape{1000, 3},
                                           RandomShape{4099, 1500}, RandomShape{50000, 700}),
                         [](const auto& shape) {
                           return fmt::format("{}_chunks_by_{}", shape.param.chunks, shape.param.longest);
                         });

// Every chunk records the thread that has it, so two at a time are detected.
class Claims {
 public:
  explicit Claims(std::uint32_t chunk_number) : claims_(chunk_number) {}
  void begin(std::uint32_t chunk, std::uint32_t length, int thread) { change(chunk, length, 0, thread); }
  void end(std::uint32_t chunk, std::uint32_t length, int thread) { change(chunk, length, thread, 0); }

 private:
  void change(std::uint32_t chunk, std::uint32_t length, int from, int to) {
    for (std::uint32_t index = chunk; index < chunk + length; ++index) {
      ASSERT_EQ(claims_.at(index).exchange(to, std::memory_order_relaxed), from) << "chunk " << index;
    }
  }
  std::vector<std::atomic<int>> claims_;
};

void use_at_random(const BlockPool& pool, const PoolMember& me, Claims& claims, int thread) {
  std::mt19937 random(static_cast<unsigned>(thread));
  std::vector<BlockRef> blocks;
  const auto end = [&](BlockRef block) {
    claims.end(block.chunk, static_cast<std::uint32_t>(pool.capacity_of(block) / kChunk), thread);
    pool.adopt(block, kOtherUser);
    pool.free(block, kOtherUser, me);
  };
  for (int round = 0; round < 20'000; ++round) {
    const std::uint32_t length = 1 + static_cast<std::uint32_t>(random() % 20);
    if (const auto block = pool.allocate(std::uint64_t{length} * kChunk, kUser, me)) {
      claims.begin(block->chunk, length, thread);
      blocks.push_back(*block);
    }
    if (blocks.size() > random() % 10) {
      end(blocks.back());
      blocks.pop_back();
    }
  }
  for (const auto block : blocks) end(block);
}

TEST(BlockPool, threads_never_have_the_same_chunk) {
  PoolMemory memory(chunks(256));
  const BlockPool pool = memory.pool();
  const PoolMember me(kUser);
  Claims claims(256);
  {
    std::vector<std::jthread> threads;
    for (int thread = 1; thread <= 4; ++thread) {
      threads.emplace_back([&, thread] { use_at_random(pool, me, claims, thread); });
    }
  }
  EXPECT_EQ(audit(memory.view()), "");
  EXPECT_EQ(pool.free_bytes(), 256U * kChunk);
}

TEST(BlockPool, exactly_one_of_concurrent_free_and_adopt_succeeds) {
  PoolMemory memory(chunks(8));
  const BlockPool pool = memory.pool();
  const PoolMember me(kUser);
  for (int round = 0; round < 200; ++round) {
    const BlockRef block = pool.allocate(kChunk, kUser, me).value();
    std::atomic<int> ready = 0;
    bool is_adopted = false;
    {
      const std::jthread taker([&] {
        ++ready;
        while (ready < 2) std::this_thread::yield();
        try {
          pool.adopt(block, kOtherUser);
          is_adopted = true;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::corrupt);
        }
      });
      ++ready;
      while (ready < 2) std::this_thread::yield();
      try {
        pool.free(block, kUser, me);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::corrupt);
      }
    }
    ASSERT_EQ(is_adopted, pool.used_blocks() == 1);
    if (is_adopted) pool.free(block, kOtherUser, me);
    ASSERT_EQ(audit(memory.view()), "");
  }
}

// Bytes of the state change at random during use. Every call must end with a result inside the pool or an error. The
// lock is left alone, since a lock that seems held is held.
class SpoiledPool : public ::testing::TestWithParam<unsigned> {};

TEST_P(SpoiledPool, reports_errors_and_does_nothing_worse) {
  std::mt19937 random(GetParam());
  const PoolMember me(kUser);
  int errors = 0;
  for (int round = 0; round < 30; ++round) {
    const std::uint32_t number = 1 + static_cast<std::uint32_t>(random() % 200);
    PoolMemory memory(chunks(number));
    const BlockPool pool = memory.pool();
    std::vector<BlockRef> blocks;
    for (int step = 0; step < 300; ++step) {
      if (step > 20 && random() % 4 == 0) {
        const std::size_t place = sizeof(CellLockLayout) + random() % (memory.size() - sizeof(CellLockLayout));
        memory.data()[place] ^= static_cast<std::byte>(1U << random() % 8);
      }
      try {
        const auto action = random() % 10;
        if (action < 5) {
          if (const auto block = pool.allocate(random() % (40U * kChunk), kUser, me)) blocks.push_back(*block);
        } else if (action < 8 && !blocks.empty()) {
          const BlockRef block = blocks.back();
          blocks.pop_back();
          ASSERT_LE(pool.offset_of(block) + pool.capacity_of(block), std::uint64_t{number} * kChunk);
          pool.free(block, kUser, me);
        } else if (action == 8) {
          static_cast<void>(pool.usage(me));
        } else if (random() % 10 == 0) {
          const bool is_holder = random() % 2 == 0;
          ASSERT_EQ(is_holder && try_lock(memory.view().header.lock, kOtherUser, 0), is_holder);
          pool.recover(kOtherUser, test::never_referenced);
        }
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Errc::corrupt) << error.what();
        ++errors;
      }
      ASSERT_EQ(holder_of(memory.view().header.lock), kNobody);
    }
  }
  EXPECT_GT(errors, 0);
}

INSTANTIATE_TEST_SUITE_P(BlockPool, SpoiledPool, ::testing::Range(1U, 9U));

}  // namespace
}  // namespace drover::ipc
