// Block pools: allocation, freeing, and misuse.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "ipc/ledger/pool_support.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::audit;
using test::chunks;
using test::expect_error;
using test::kChunk;
using test::PoolMember;
using test::PoolMemory;

constexpr Owner kMe = 7;
constexpr Owner kOther = 1023;

// Each test has its own pool, of 64 chunks by default.
class BlockPoolTest : public ::testing::Test {
 protected:
  BlockRef take(std::uint32_t number, Owner owner = kMe) {
    const auto block = pool_.allocate(std::uint64_t{number} * kChunk, owner, me_);
    EXPECT_TRUE(block);
    return block.value_or(BlockRef{});
  }
  void give(BlockRef block, Owner owner = kMe) { pool_.free(block, owner, me_); }
  [[nodiscard]] bool has_room_for(std::uint32_t number) {
    const auto block = pool_.allocate(std::uint64_t{number} * kChunk, kMe, me_);
    if (block) give(*block);
    return block.has_value();
  }
  void TearDown() override { EXPECT_EQ(audit(memory_.view()), ""); }

  PoolMember me_{kMe};
  PoolMemory memory_{chunks(64)};
  BlockPool pool_ = memory_.pool();
};

TEST(SizeClasses, cover_all_sizes_in_order) {
  SizeClass before = class_of(1);
  for (std::uint32_t size = 1; size <= kMaxSize; size += 1 + size / 1000) {
    const SizeClass in = class_of(size);
    ASSERT_LT(in.row, kSizeRows);
    ASSERT_LT(in.column, kSizeColumns);
    ASSERT_GE(in.row * kSizeColumns + in.column, before.row * kSizeColumns + before.column);
    ASSERT_LE(smallest_in(in), size);
    ASSERT_EQ(class_of(smallest_in(in)), in);
    before = in;
  }
  EXPECT_EQ(class_of(kMaxSize), (SizeClass{.row = kSizeRows - 1, .column = kSizeColumns - 1}));
}

TEST(SizeClasses, a_class_that_is_searched_holds_no_smaller_size) {
  for (std::uint32_t size = 1; size <= kMaxSize; size += 1 + size / 1000) {
    const SizeClass in = class_at_least(size);
    if (in.row == kSizeRows) {
      ASSERT_LT(smallest_in(class_of(kMaxSize)), size);
      continue;
    }
    ASSERT_GE(smallest_in(in), size);
    ASSERT_TRUE(in == class_of(size) || smallest_in(class_of(size)) < size);
  }
}

TEST(SizeClasses, each_size_up_to_64_has_a_class_of_its_own) {
  for (std::uint32_t size = 1; size <= 64; ++size) ASSERT_EQ(smallest_in(class_of(size)), size);
}

TEST(ChunkWord, round_trips_an_extent) {
  const std::array extents = {
      Extent{},
      Extent{.is_used = true, .length = kMaxChunks, .owner = kPoolOwnerMask, .generation = kGenerationMask},
      Extent{.length = kMaxChunks},
      Extent{.is_used = true, .length = 1, .owner = 1, .generation = 0},
      Extent{.generation = kGenerationMask},
  };
  for (const auto& extent : extents) EXPECT_EQ(decode_extent(encode(extent)), extent);
  EXPECT_EQ(encode(Extent{}), 0U);
}

TEST(PoolGeometry, impossible_geometries_are_refused_with_the_limits) {
  const std::array wrong = {PoolGeometry{.bytes = 0, .chunk_bytes = kChunk},
                            PoolGeometry{.bytes = kChunk - 1, .chunk_bytes = kChunk},
                            PoolGeometry{.bytes = 65536, .chunk_bytes = 0},
                            PoolGeometry{.bytes = 65536, .chunk_bytes = 32},
                            PoolGeometry{.bytes = 65536, .chunk_bytes = 1000},
                            PoolGeometry{.bytes = std::uint64_t{1} << 34U, .chunk_bytes = kChunk}};
  for (const auto& geometry : wrong) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(pool_state_bytes(geometry)); }, {"16777215"});
  }
}

TEST(PoolGeometry, the_state_is_a_multiple_of_a_cache_line) {
  for (const std::uint32_t number : {1U, 2U, 3U, 64U, 1001U, kMaxChunks}) {
    EXPECT_EQ(pool_state_bytes(chunks(number)) % kCacheLine, 0U);
    EXPECT_GE(pool_state_bytes(chunks(number)), number * sizeof(ChunkCell));
  }
}

TEST(PoolGeometry, formatting_a_terabyte_touches_a_few_pages) {
  const PoolGeometry geometry{.bytes = std::uint64_t{1} << 40U, .chunk_bytes = 131072};
  const std::size_t bytes = pool_state_bytes(geometry);
  ASSERT_GT(bytes, std::size_t{100} << 20U);
  const Fd file = make_memory_file("pool state", bytes);
  const Mapping mapping = Mapping::shared(file, bytes);
  format_pool(mapping.data(), geometry);
  const BlockPool pool(mapping.data(), geometry);
  const PoolMember me(kMe);
  const auto block = pool.allocate(std::uint64_t{1} << 30U, kMe, me);
  ASSERT_TRUE(block);
  pool.free(*block, kMe, me);
  struct stat status{};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, 64 * 1024);
  EXPECT_EQ(pool.free_bytes(), std::uint64_t{1} << 40U);
}

TEST_F(BlockPoolTest, a_block_can_be_the_whole_pool) {
  const BlockRef all = take(64);
  EXPECT_EQ(pool_.offset_of(all), 0U);
  EXPECT_EQ(pool_.capacity_of(all), 64U * kChunk);
  EXPECT_FALSE(pool_.allocate(1, kMe, me_));
  give(all);
  EXPECT_EQ(pool_.free_bytes(), 64U * kChunk);
}

TEST_F(BlockPoolTest, a_block_of_the_whole_pool_is_found_in_every_size_class) {
  for (const std::uint32_t number : {1U, 2U, 31U, 32U, 63U, 64U, 65U, 127U, 129U, 1000U, 4097U, 65535U}) {
    PoolMemory memory(chunks(number));
    const BlockPool pool = memory.pool();
    for (int round = 0; round < 2; ++round) {
      const auto block = pool.allocate(std::uint64_t{number} * kChunk, kMe, me_);
      ASSERT_TRUE(block) << number;
      pool.free(*block, kMe, me_);
    }
    ASSERT_EQ(audit(memory.view()), "");
  }
}

TEST_F(BlockPoolTest, a_size_that_never_fits_is_distinguished_from_a_full_pool) {
  EXPECT_FALSE(pool_.is_too_large(0));
  EXPECT_FALSE(pool_.is_too_large(64 * kChunk));
  EXPECT_TRUE(pool_.is_too_large(64 * kChunk + 1));
  EXPECT_TRUE(pool_.is_too_large(~std::uint64_t{0}));
  EXPECT_FALSE(pool_.allocate(64 * kChunk + 1, kMe, me_));
  EXPECT_FALSE(pool_.allocate(~std::uint64_t{0}, kMe, me_));
}

TEST_F(BlockPoolTest, zero_bytes_get_a_chunk) {
  const auto block = pool_.allocate(0, kMe, me_);
  ASSERT_TRUE(block);
  EXPECT_EQ(pool_.capacity_of(*block), kChunk);
  give(*block);
}

TEST_F(BlockPoolTest, one_byte_more_than_a_chunk_takes_two_chunks) {
  const auto one = pool_.allocate(kChunk, kMe, me_);
  const auto two = pool_.allocate(kChunk + 1, kMe, me_);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(pool_.capacity_of(*one), kChunk);
  EXPECT_EQ(pool_.capacity_of(*two), 2 * kChunk);
  give(*one);
  give(*two);
}

TEST_F(BlockPoolTest, freeing_a_block_makes_room_in_a_full_pool) {
  std::vector<BlockRef> blocks(64);
  for (auto& block : blocks) block = take(1);
  EXPECT_FALSE(has_room_for(1));
  give(blocks[40]);
  EXPECT_TRUE(has_room_for(1));
  EXPECT_FALSE(has_room_for(2));
  blocks[40] = take(1);
  for (const auto block : blocks) give(block);
  EXPECT_TRUE(has_room_for(64));
}

TEST_F(BlockPoolTest, separate_free_chunks_do_not_make_a_block) {
  std::vector<BlockRef> blocks(64);
  for (auto& block : blocks) block = take(1);
  for (std::size_t index = 0; index < 64; index += 2) give(blocks[index]);
  EXPECT_EQ(pool_.free_bytes(), 32U * kChunk);
  EXPECT_FALSE(has_room_for(2));
  give(blocks[31]);
  EXPECT_TRUE(has_room_for(3));
  EXPECT_FALSE(has_room_for(4));
}

TEST_F(BlockPoolTest, freed_neighbours_become_one_in_every_order) {
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  do {
    std::array<BlockRef, 4> blocks{};
    for (auto& block : blocks) block = take(16);
    for (const std::size_t index : order) {
      give(blocks.at(index));
      ASSERT_EQ(audit(memory_.view()), "");
    }
    ASSERT_TRUE(has_room_for(64));
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(BlockPoolTest, a_block_is_freed_once) {
  const BlockRef block = take(3);
  give(block);
  const auto before = memory_.bytes();
  expect_error(Errc::corrupt, [&] { give(block); }, {"no longer in use"});
  EXPECT_EQ(memory_.bytes(), before);
}

TEST_F(BlockPoolTest, a_stale_reference_does_not_reach_the_next_block_at_its_place) {
  const BlockRef stale = take(3);
  give(stale);
  const BlockRef next = take(3);
  ASSERT_EQ(next.chunk, stale.chunk);
  EXPECT_NE(next, stale);
  const auto before = memory_.bytes();
  expect_error(Errc::corrupt, [&] { give(stale); });
  expect_error(Errc::corrupt, [&] { pool_.adopt(stale, kOther); });
  expect_error(Errc::corrupt, [&] { static_cast<void>(pool_.offset_of(stale)); });
  expect_error(Errc::corrupt, [&] { static_cast<void>(pool_.capacity_of(stale)); });
  expect_error(Errc::corrupt, [&] { static_cast<void>(pool_.owner_of(stale)); });
  EXPECT_EQ(memory_.bytes(), before);
  give(next);
}

TEST_F(BlockPoolTest, a_reference_into_the_middle_of_a_block_is_refused) {
  const BlockRef left = take(1);
  const BlockRef right = take(1);
  give(left);
  give(right);
  const BlockRef both = take(2);
  for (std::uint32_t generation = 0; generation < 4; ++generation) {
    expect_error(Errc::corrupt, [&] { give({.chunk = right.chunk, .generation = generation}); });
  }
  give(both);
}

TEST_F(BlockPoolTest, a_reference_beyond_the_pool_is_refused) {
  for (const std::uint32_t chunk : {64U, 65U, kMaxChunks, ~0U}) {
    expect_error(Errc::corrupt, [&] { give({.chunk = chunk, .generation = 0}); });
    expect_error(Errc::corrupt, [&] { pool_.adopt({.chunk = chunk, .generation = 0}, kMe); });
  }
}

TEST_F(BlockPoolTest, only_the_owner_frees) {
  const BlockRef block = take(3);
  const auto before = memory_.bytes();
  expect_error(Errc::corrupt, [&] { give(block, kOther); }, {"participant 7, not 1023"});
  EXPECT_EQ(memory_.bytes(), before);
  pool_.adopt(block, kOther);
  EXPECT_EQ(pool_.owner_of(block), kOther);
  expect_error(Errc::corrupt, [&] { give(block, kMe); });
  give(block, kOther);
}

TEST_F(BlockPoolTest, a_block_needs_an_owner) {
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(pool_.allocate(1, kNobody, me_)); });
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(pool_.allocate(1, kPoolOwnerMask + 1, me_)); });
  const BlockRef block = take(1);
  expect_error(Errc::invalid_argument, [&] { pool_.adopt(block, kNobody); });
  expect_error(Errc::invalid_argument, [&] { pool_.adopt(block, kPoolOwnerMask + 1); });
  give(block);
}

TEST_F(BlockPoolTest, generations_wrap_around) {
  const Extent old{.length = 64, .generation = kGenerationMask};
  memory_.view().cells[0].word = encode(old);
  const BlockRef last = take(64);
  EXPECT_EQ(last.generation, kGenerationMask);
  give(last);
  EXPECT_EQ(take(64).generation, 0U);
}

TEST_F(BlockPoolTest, usage_shows_the_bytes_of_each_owner) {
  const BlockRef mine = take(3);
  const BlockRef others = take(5, kOther);
  take(2, kOther);
  give(mine);
  const PoolUsage usage = pool_.usage(me_);
  EXPECT_EQ(usage.total_bytes, 64U * kChunk);
  EXPECT_EQ(usage.free_bytes, 57U * kChunk);
  EXPECT_EQ(usage.largest_free_bytes, 54U * kChunk);
  EXPECT_EQ(usage.used_blocks, 2U);
  EXPECT_EQ(usage.owner_bytes, (std::map<Owner, std::uint64_t>{{kOther, 7U * kChunk}}));
  EXPECT_EQ(pool_.free_bytes(), usage.free_bytes);
  EXPECT_EQ(pool_.used_blocks(), usage.used_blocks);
  pool_.adopt(others, kMe);
  EXPECT_EQ(pool_.usage(me_).owner_bytes,
            (std::map<Owner, std::uint64_t>{{kMe, 5U * kChunk}, {kOther, 2U * kChunk}}));
}

struct CountedSteps {
  static void before_write() noexcept { ++writes; }
  static inline int writes = 0;
};

// The work of an operation, counted in writes instead of in time.
int most_writes_with(std::uint32_t live_blocks) {
  PoolMemory memory(chunks(100'000));
  const BlockPoolCore<CountedSteps> core(memory.view());
  std::vector<std::uint32_t> blocks;
  std::mt19937 random(1);
  for (std::uint32_t index = 0; index < 2 * live_blocks; ++index)
    blocks.push_back(core.allocate(1 + random() % 4, kMe).value().chunk);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (; blocks.size() > live_blocks; blocks.pop_back())
    EXPECT_TRUE(core.free(blocks.back(), core.checked(blocks.back())));
  int most = 0;
  for (int round = 0; round < 1000; ++round) {
    CountedSteps::writes = 0;
    auto& block = blocks.at(random() % blocks.size());
    EXPECT_TRUE(core.free(block, core.checked(block)));
    block = core.allocate(1 + random() % 4, kMe).value().chunk;
    most = std::max(most, CountedSteps::writes);
  }
  return most;
}

TEST(BlockPool, the_work_of_an_operation_does_not_grow_with_the_blocks) {
  const int most_of_many = most_writes_with(10'000);
  EXPECT_GT(most_of_many, 0);
  EXPECT_LE(most_of_many, 40);
  EXPECT_LE(most_writes_with(10), 40);
}

TEST(BlockPool, a_wait_for_the_lock_ends_when_the_session_is_over) {
  PoolMemory memory(chunks(64));
  const PoolMember holder(kOther);
  PoolMember me(kMe);
  const CellGuard guard(memory.view().header.lock, holder);
  me.is_over = true;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(memory.pool().allocate(1, kMe, me)); });
}

}  // namespace
}  // namespace drover::ipc
