// Empty slabs that are kept for later blocks: how many, how long, and when they are given back.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/tensor/memory.hpp"
#include "drover/tensor/tensor.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/leftovers.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/host_shortage.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;
using test::TestSession;
using namespace std::chrono_literals;

constexpr auto kLong = 1h;  // slabs do not expire in these tests
constexpr auto kShort = 40ms;

MemoryOptions options(std::uint64_t idle_bytes, std::chrono::milliseconds idle_time = kLong) {
  return {.slab_bytes = 2 * kMiB, .budgets = {}, .idle_bytes = idle_bytes, .idle_time = idle_time};
}

// Waits for an asynchronous change; the supervisor ends a test that hangs.
void wait_until(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::sleep_for(5ms);
}

std::uint64_t idle_in(const Memory& memory) {
  std::uint64_t bytes = 0;
  for (const SlabUsage& slab : memory.usage()) bytes += slab.is_idle ? slab.bytes : 0;
  return bytes;
}

class IdleMemory : public ::testing::Test {
 protected:
  Lease send(const Block& block) {
    Lease lease = block.share();
    std::vector<Lease> leases;
    leases.push_back(std::move(lease));
    EXPECT_EQ(queue_.put({}, leases), PutResult::put);
    Message message;
    EXPECT_EQ(their_queue_.get(message), GetResult::got);
    return std::move(message.take_leases().at(0));
  }

  TestSession session_;
  std::shared_ptr<Membership> self_ = session_.join();
  std::shared_ptr<Membership> other_ = session_.join();
  Queue queue_{self_};
  Queue their_queue_{other_, queue_.handle()};
};

TEST_F(IdleMemory, an_emptied_slab_is_reused_for_a_block_of_similar_size) {
  Memory memory(self_, options(64 * kMiB));
  Block first = memory.allocate(Place::cpu(), 5 * kMiB + 1);
  const ObjectHandle slab = first.lease().slab();
  first.release();
  EXPECT_GE(idle_in(memory), 5 * kMiB);
  EXPECT_EQ(memory.claimed(Place::cpu()), 0U);
  const Block same = memory.allocate(Place::cpu(), 5 * kMiB + 300 * kKiB);
  EXPECT_EQ(same.lease().slab(), slab);
  EXPECT_EQ(idle_in(memory), 0U) << "slabs in use are not idle";
}

TEST_F(IdleMemory, small_blocks_do_not_reuse_large_slabs) {
  Memory memory(self_, options(64 * kMiB));
  Block large = memory.allocate(Place::cpu(), 16 * kMiB);
  const ObjectHandle slab = large.lease().slab();
  large.release();
  const Block small = memory.allocate(Place::cpu(), 1000);
  const Block medium = memory.allocate(Place::cpu(), 3 * kMiB);
  EXPECT_NE(small.lease().slab(), slab);
  EXPECT_NE(medium.lease().slab(), slab);
  EXPECT_EQ(memory.allocate(Place::cpu(), 15 * kMiB).lease().slab(), slab);
}

TEST_F(IdleMemory, the_oldest_slabs_are_dropped_beyond_the_limit) {
  Memory memory(self_, options(18 * kMiB));
  std::vector<Block> blocks;
  for (int number = 0; number < 4; ++number) blocks.push_back(memory.allocate(Place::cpu(), 8 * kMiB));
  const ObjectHandle last = blocks.back().lease().slab();
  for (Block& block : blocks) block.release();
  EXPECT_LE(idle_in(memory), 18 * kMiB);
  EXPECT_EQ(memory.usage().size(), 2U);
  EXPECT_EQ(session_.file_count(), 2U);
  EXPECT_EQ(memory.usage().back().handle, last);
  Block too_large = memory.allocate(Place::cpu(), 30 * kMiB);
  too_large.release();
  EXPECT_EQ(memory.usage().size(), 2U) << "a slab over the limit is given back at once, and displaces no other";
}

TEST_F(IdleMemory, idle_slabs_expire_without_calls) {
  Memory memory(self_, options(64 * kMiB, kShort));
  for (int round = 0; round < 2; ++round) {
    Block large = memory.allocate(Place::cpu(), 5 * kMiB);
    const Block small = memory.allocate(Place::cpu(), 100);
    large.release();
    wait_until([&] { return session_.file_count() == 1U; });  // the one for small blocks stays
  }
  EXPECT_EQ(memory.usage().size(), 1U);
  EXPECT_TRUE(memory.usage().at(0).is_idle);
}

TEST_F(IdleMemory, slabs_that_peers_empty_later_are_given_back) {
  Memory mine(self_, options(64 * kMiB, kShort));
  Memory theirs(other_, options(64 * kMiB, kShort));
  Block received;
  {
    const Block block = mine.allocate(Place::cpu(), 5 * kMiB);
    received = theirs.open(send(block));
  }
  std::this_thread::sleep_for(3 * kShort);
  EXPECT_EQ(mine.usage().size(), 1U) << "a peer has a block in it";
  received.release();
  wait_until([&] { return session_.file_count() == 0U; });
  EXPECT_TRUE(mine.usage().empty());
  EXPECT_TRUE(theirs.usage().empty());
}

TEST_F(IdleMemory, a_receiver_keeps_its_mapping_while_the_owner_keeps_the_slab) {
  Memory mine(self_, options(64 * kMiB));
  Memory theirs(other_, options(64 * kMiB));
  ObjectHandle slab;
  for (int round = 0; round < 3; ++round) {
    Block block = mine.allocate(Place::cpu(), 5 * kMiB);
    EXPECT_TRUE(round == 0 || block.lease().slab() == slab);
    slab = block.lease().slab();
    test::write_number(block, 7);
    Block received = theirs.open(send(block));
    block.release();
    EXPECT_EQ(test::read_number(received), 7U);
    received.release();
    EXPECT_GE(idle_in(theirs), 5 * kMiB);
  }
}

TEST_F(IdleMemory, a_receiver_unmaps_an_abandoned_slab_at_its_next_poll) {
  Memory theirs(other_, options(64 * kMiB, 400ms));
  {
    Memory mine(self_, options(64 * kMiB));
    Block block = mine.allocate(Place::cpu(), 5 * kMiB);
    Block received = theirs.open(send(block));
    block.release();
  }
  wait_until([&] { return session_.file_count() == 0U; });
  EXPECT_TRUE(theirs.usage().empty());
}

TEST_F(IdleMemory, a_receiver_unmaps_slabs_that_become_empty_later_even_if_it_keeps_none) {
  Memory theirs(other_, options(0, kShort));
  for (const std::uint64_t bytes : {5 * kMiB, kMiB + 4096}) {
    Memory mine(self_, options(0, kShort));
    const Block block = mine.allocate(Place::cpu(), bytes);
    theirs.open(send(block)).release();
    EXPECT_EQ(theirs.usage().size(), 1U) << "its owner has a block in it";
  }
  wait_until([&] { return session_.file_count() == 0U; });
  EXPECT_TRUE(theirs.usage().empty());
}

TEST_F(IdleMemory, trim_and_destruction_give_everything_back) {
  {
    Memory memory(self_, options(64 * kMiB));
    memory.allocate(Place::cpu(), 5 * kMiB).release();
    EXPECT_EQ(session_.file_count(), 1U);
    memory.trim();
    EXPECT_EQ(session_.file_count(), 0U);
    memory.allocate(Place::cpu(), 5 * kMiB).release();
    EXPECT_EQ(session_.file_count(), 1U);
  }
  EXPECT_EQ(session_.file_count(), 0U);
}

TEST_F(IdleMemory, idle_slabs_are_dropped_to_stay_within_the_budget) {
  MemoryOptions limited = options(64 * kMiB);
  limited.budgets = {{Place::cpu(), 20 * kMiB}};
  Memory memory(self_, limited);
  memory.allocate(Place::cpu(), 9 * kMiB).release();
  EXPECT_EQ(memory.usage().size(), 1U);
  Block large = memory.allocate(Place::cpu(), 18 * kMiB);
  EXPECT_EQ(memory.usage().size(), 1U) << "both together would exceed the budget";
  large.release();
  EXPECT_EQ(memory.usage().size(), 1U);
}

TEST_F(IdleMemory, idle_slabs_are_dropped_if_memory_runs_out) {
  Memory memory(self_, options(64 * kMiB));
  memory.allocate(Place::cpu(), 5 * kMiB).release();
  const test::FaultSeam seam("mmap", ENOMEM);
  expect_error(Errc::out_of_memory, [&] { static_cast<void>(memory.allocate(Place::cpu(), 40 * kMiB)); });
  EXPECT_TRUE(memory.usage().empty());
}

TEST_F(IdleMemory, devices_keep_a_small_share_for_a_short_time) {
  const Place device = Place::parse("host:0");
  const std::uint64_t share = backend_of(BackendKind::host).devices().at(0).memory_total / 64;
  const auto fill = [&](Memory& memory) {
    std::vector<Block> blocks;
    for (int number = 0; number < 6; ++number) blocks.push_back(memory.allocate(device, share / 4));
  };
  Memory memory(self_, options(kGiB));
  fill(memory);
  EXPECT_GT(memory.usage().size(), 1U);
  EXPECT_LE(idle_in(memory), share);
  memory.trim();
  Memory brief(self_, options(kGiB, kShort));
  fill(brief);
  wait_until([&] { return brief.usage().empty(); });
  Memory none(self_, options(0));
  fill(none);
  EXPECT_EQ(none.usage().size(), 1U);
}

TEST_F(IdleMemory, the_environment_sets_the_limit) {
  ::setenv("DROVER_IDLE_MEMORY", "0", 1);
  Memory none(self_, {.slab_bytes = 2 * kMiB});
  ::setenv("DROVER_IDLE_MEMORY", "6MiB", 1);
  Memory some(self_, {.slab_bytes = 2 * kMiB, .budgets = {}, .idle_bytes = {}, .idle_time = kLong});
  ::setenv("DROVER_IDLE_MEMORY", "plenty", 1);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(Memory(self_)); }, {"DROVER_IDLE_MEMORY=plenty"});
  ::unsetenv("DROVER_IDLE_MEMORY");
  for (Memory* const memory : {&none, &some}) {
    const Block small = memory->allocate(Place::cpu(), 100);
    memory->allocate(Place::cpu(), 5 * kMiB).release();
    memory->allocate(Place::cpu(), 12 * kMiB).release();
    EXPECT_EQ(idle_in(*memory) > 0, memory == &some);
    EXPECT_LE(idle_in(*memory), 6 * kMiB);
  }
}

TEST_F(IdleMemory, threads_can_allocate_while_slabs_expire) {
  Memory memory(self_, options(12 * kMiB, 1ms));
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 3; ++number) {
    threads.emplace_back([&memory, number] {
      for (std::uint64_t round = 0; round < 60; ++round) {
        const Block block = memory.allocate(Place::cpu(), (2 + number) * kMiB);
        test::write_number(block, number * 1000 + round);
        if (round % 8 == 0) std::this_thread::sleep_for(2ms);
        EXPECT_EQ(test::read_number(block), number * 1000 + round);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.claimed(Place::cpu()), 0U);
}

TEST_F(IdleMemory, copies_into_new_and_kept_slabs_are_complete) {
  Memory memory(self_, options(64 * kMiB));
  std::vector<std::uint64_t> numbers(600'000);
  for (std::uint64_t round = 1; round < 4; ++round) {
    for (std::uint64_t at = 0; at < numbers.size(); ++at) numbers[at] = at * round;
    const Tensor copied = from_values(memory, std::span<const std::uint64_t>(numbers));
    const auto elements = copied.elements<std::uint64_t>();
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), elements.begin()));
  }
  EXPECT_EQ(memory.usage().size(), 1U);
}

TEST_F(IdleMemory, slabs_hold_no_descriptor) {
  Memory memory(self_, options(64 * kMiB));
  const std::vector<std::uint64_t> numbers(600'000, 3);
  std::vector<Tensor> tensors;
  const auto slab_files = [&] {  // held by the keeper, which is in this process
    return std::ranges::count_if(test::open_descriptors(), [](const auto& each) {
      return each.second.find("drover slab") != std::string::npos;
    });
  };
  for (std::int64_t number = 1; number < 4; ++number) {
    tensors.push_back(from_values(memory, std::span<const std::uint64_t>(numbers)));
    tensors.push_back(empty(memory, DType::uint8, {5'000'000}));
    EXPECT_EQ(slab_files(), static_cast<std::int64_t>(session_.file_count()));
  }
  EXPECT_GE(session_.file_count(), 6U);
}

TEST_F(IdleMemory, copies_are_complete_without_a_descriptor) {
  Memory memory(self_, options(64 * kMiB));
  const std::vector<std::uint64_t> numbers(600'000, 3);
  const test::FaultSeam all("fcntl", EMFILE, {.nth = 1000});
  const Tensor other = empty(memory, DType::uint64, {600'000});
  const test::FaultSeam none_left("fcntl", EMFILE, {.nth = all.calls() + 1});  // once the slab is made
  const Tensor copied = from_values(memory, std::span<const std::uint64_t>(numbers));
  EXPECT_EQ(none_left.strikes(), 1);
  EXPECT_EQ(copied.elements<std::uint64_t>()[599'999], 3U);
}

TEST_F(IdleMemory, running_out_of_pages_throws_and_raises_no_signal) {
  Memory memory(self_, options(64 * kMiB));
  const std::vector<std::uint64_t> numbers(600'000, 3);
  const auto copy = [&] { return from_values(memory, std::span<const std::uint64_t>(numbers)); };
  {
    const test::FaultSeam seam("pwrite", ENOSPC);
    expect_error(Errc::out_of_memory, [&] { static_cast<void>(copy()); }, {"no pages for a block of 4.6 MiB"});
  }
  memory.trim();
  const test::FaultSeam seam("pwrite", EIO);  // any other error
  EXPECT_EQ(copy().elements<std::uint64_t>()[599'999], 3U);
}

TEST(HostShortage, is_detected_on_the_machine_and_in_the_container) {
  const std::string much = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:   8000000 kB\n";
  const std::string little = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    900000 kB\n";
  EXPECT_FALSE(is_short_of_memory(much, "", ""));
  EXPECT_FALSE(is_short_of_memory(much, "max\n", "123456\n"));
  EXPECT_FALSE(is_short_of_memory(much, "1000000\n", "900000\n"));
  EXPECT_TRUE(is_short_of_memory(little, "", ""));
  EXPECT_TRUE(is_short_of_memory(much, "1000000\n", "950000\n"));
  EXPECT_TRUE(is_short_of_memory(much, "1000000\n", "1000001\n"));
  EXPECT_FALSE(is_short_of_memory("", "", ""));
  const std::string stat = "anon 5\nfile 600000\ninactive_anon 7\ninactive_file 500000\nactive_file 100000\n";
  EXPECT_FALSE(is_short_of_memory(much, "1000000\n", "990000\n", stat)) << "inactive file pages count as free";
  EXPECT_FALSE(is_short_of_memory(much, "1000000\n", "400000\n", stat));
}

TEST(HostShortage, container_memory_is_its_limit) {
  EXPECT_EQ(container_memory("1000000\n"), 1'000'000U);
  EXPECT_FALSE(container_memory("max\n").has_value());
  EXPECT_FALSE(container_memory("").has_value());
}

}  // namespace
}  // namespace drover::tensor
