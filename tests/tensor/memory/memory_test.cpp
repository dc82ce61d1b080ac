// Blocks of shared memory, of the host and of devices, in one process.
#include "drover/tensor/memory.hpp"

#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/ledger/open_ledger.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;
using test::FaultSeam;
using test::read_number;
using test::TestSession;
using test::write_number;

// Only one empty slab is kept here; idle_slabs_test.cpp tests slabs that are kept for a while.
MemoryOptions small_slabs() { return {.slab_bytes = 2 * kMiB, .budgets = {}, .idle_bytes = 0}; }

class MemoryAt : public test::PlaceTest {
 protected:
  static std::size_t slabs_in(const Memory& memory) { return memory.usage().size(); }

  TestSession session_;
  std::shared_ptr<Membership> self_ = session_.join();
};

TEST_P(MemoryAt, blocks_hold_what_was_written) {
  Memory memory(self_, small_slabs());
  std::vector<Block> blocks;
  for (std::uint64_t number = 0; number < 50; ++number) {
    blocks.push_back(memory.allocate(place(), 8 + number * 100));
    EXPECT_EQ(blocks.back().place(), place());
    EXPECT_GE(blocks.back().size(), 8 + number * 100);
    write_number(blocks.back(), number);
  }
  for (std::uint64_t number = 0; number < 50; ++number) EXPECT_EQ(read_number(blocks[number]), number);
  EXPECT_EQ(slabs_in(memory), 1U);
}

TEST_P(MemoryAt, claims_are_counted) {
  Memory memory(self_, small_slabs());
  EXPECT_EQ(memory.claimed(place()), 0U);
  Block first = memory.allocate(place(), 1000);
  Block second = memory.allocate(place(), 5000);
  EXPECT_EQ(memory.claimed(place()), first.size() + second.size());
  second = std::move(first);
  EXPECT_EQ(memory.claimed(place()), 1024U);
  second.release();
  EXPECT_FALSE(second.is_open());
  EXPECT_EQ(memory.claimed(place()), 0U);
}

TEST_P(MemoryAt, slabs_are_made_as_needed_and_all_but_one_are_given_back) {
  Memory memory(self_, small_slabs());
  std::vector<Block> blocks;
  for (int number = 0; number < 12; ++number) blocks.push_back(memory.allocate(place(), 700 * kKiB));
  EXPECT_EQ(slabs_in(memory), 6U);
  EXPECT_EQ(session_.file_count(), 6U);
  blocks.clear();
  EXPECT_EQ(slabs_in(memory), 1U);
  EXPECT_EQ(session_.file_count(), 1U);
  memory.trim();
  EXPECT_EQ(slabs_in(memory), 0U);
  EXPECT_EQ(session_.file_count(), 0U);
}

TEST_P(MemoryAt, blocks_over_half_a_slab_get_their_own) {
  Memory memory(self_, small_slabs());
  const Block large = memory.allocate(place(), 5 * kMiB + 1);
  const Block small = memory.allocate(place(), 10);
  EXPECT_GE(large.size(), 5 * kMiB + 1);
  EXPECT_LE(memory.usage().at(0).bytes, 8 * kMiB);
}

TEST_P(MemoryAt, budgets_are_enforced_and_name_the_claims) {
  Memory memory(self_, {.slab_bytes = 2 * kMiB, .budgets = {{place(), 3000}}});
  Block first = memory.allocate(place(), 2048);
  expect_error(Errc::limit_reached, [&] { static_cast<void>(memory.allocate(place(), 1000)); },
               {"exceed the budget", "claims 2.0 KiB of 2.9 KiB", "MemoryOptions::budgets"});
  expect_error(Errc::limit_reached, [&] { static_cast<void>(memory.allocate(place(), kGiB)); });
  first.release();
  EXPECT_TRUE(memory.allocate(place(), 1000).is_open());
}

TEST_P(MemoryAt, another_participant_opens_a_sent_block) {
  Memory mine(self_, small_slabs());
  const auto other = session_.join();
  Memory theirs(other, small_slabs());
  Queue queue(self_);
  Queue their_queue(other, queue.handle());
  for (std::uint64_t round = 0; round < 20; ++round) {
    Block block = mine.allocate(place(), 100 * kKiB);
    write_number(block, round);
    std::vector<Lease> leases;
    leases.push_back(round % 2 == 0 ? block.share() : block.take_lease());
    EXPECT_EQ(block.is_open(), round % 2 == 0);
    ASSERT_EQ(queue.put({}, leases), PutResult::put);
    block.release();
    Message message;
    ASSERT_EQ(their_queue.get(message), GetResult::got);
    const Block received = theirs.open(std::move(message.take_leases().at(0)));
    EXPECT_EQ(received.place(), place());
    EXPECT_EQ(read_number(received), round);
    EXPECT_EQ(slabs_in(theirs), 1U) << "mapped once";
  }
  EXPECT_EQ(mine.claimed(place()), 0U);
  EXPECT_EQ(theirs.claimed(place()), 0U);
}

TEST_P(MemoryAt, a_received_slab_is_unmapped_after_its_owner_drops_it) {
  const auto other = session_.join();
  Memory theirs(other, small_slabs());
  Block received;
  {
    Memory mine(self_, small_slabs());
    const Block block = mine.allocate(place(), 1000);
    Lease sent = block.share();
    const ipc::SentLease words = ipc::OpenLedger::to_send(sent, *self_);
    ipc::OpenLedger::begin_sending(sent);
    ipc::OpenLedger::sent(sent);
    received = theirs.open(ipc::OpenLedger::receive(other, words));
  }
  EXPECT_EQ(session_.file_count(), 1U);
  received.release();
  EXPECT_EQ(session_.file_count(), 0U);
}

TEST_P(MemoryAt, usage_names_the_holders) {
  Memory memory(self_, small_slabs());
  const Block block = memory.allocate(place(), 1000);
  Lease sent = block.share();
  ASSERT_TRUE(ipc::OpenLedger::begin_sending(sent));
  ipc::OpenLedger::sent(sent);
  Lease kept = block.share();
  const ipc::SentLease words = ipc::OpenLedger::to_send(kept, *self_);
  ASSERT_TRUE(ipc::OpenLedger::open(self_, words.slab)->ledger().hand_over(words.lease, self_->self(), ipc::kKept));
  ipc::OpenLedger::forget(kept);
  const auto usage = memory.usage().at(0);
  EXPECT_TRUE(usage.is_own);
  EXPECT_EQ(usage.place, place());
  EXPECT_EQ(usage.blocks, 1U);
  EXPECT_EQ(usage.bytes, usage.free_bytes + 1024);
  ASSERT_EQ(usage.holders.size(), 3U);
  EXPECT_EQ(usage.holders[0].name, "participant 1");
  EXPECT_EQ(usage.holders[1].name, "kept");
  EXPECT_EQ(usage.holders[2].name, "in transit");
  EXPECT_EQ(usage.holders[2].bytes, 1024U);
}

TEST_P(MemoryAt, threads_can_share_a_memory) {
  Memory memory(self_, small_slabs());
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (int round = 0; round < 200; ++round) {
        const Block block = memory.allocate(place(), 8 + number * 3000);
        if (round % 20 == 0) {
          write_number(block, number);
          EXPECT_EQ(read_number(block), number);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.claimed(place()), 0U);
}

TEST_P(MemoryAt, bytes_require_host_memory_and_addresses_a_device) {
  Memory memory(self_, small_slabs());
  const Block block = memory.allocate(place(), 1000);
  if (place().is_device) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(block.bytes()); }, {"device_ptr()"});
    EXPECT_EQ(block.device_ptr().address % 512, 0U);
  } else {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(block.device_ptr()); }, {"bytes()"});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.bytes().data()) % 512, 0U);
  }
}

// A large received slab is unmapped with this process's last block, although its owner still has it open.
TEST_P(MemoryAt, large_slabs_of_peers_are_unmapped_when_empty) {
  const auto other = session_.join();
  Memory mine(self_, small_slabs());
  Memory theirs(other, small_slabs());
  Block large = mine.allocate(place(), 5 * kMiB);
  Lease sent = large.share();
  const ipc::SentLease words = ipc::OpenLedger::to_send(sent, *self_);
  ipc::OpenLedger::begin_sending(sent);
  ipc::OpenLedger::sent(sent);
  Block received = theirs.open(ipc::OpenLedger::receive(other, words));
  large.release();
  received.release();
  EXPECT_TRUE(theirs.usage().empty());
}

// A slab that was kept for later blocks is unmapped when it is empty and a new one arrives.
TEST_P(MemoryAt, slabs_of_peers_do_not_accumulate) {
  const auto other = session_.join();
  Memory theirs(other, small_slabs());
  for (int round = 0; round < 5; ++round) {
    Memory mine(self_, small_slabs());
    const Block block = mine.allocate(place(), 3 * kMiB);
    Lease sent = block.share();
    const ipc::SentLease words = ipc::OpenLedger::to_send(sent, *self_);
    ipc::OpenLedger::begin_sending(sent);
    ipc::OpenLedger::sent(sent);
    EXPECT_TRUE(theirs.open(ipc::OpenLedger::receive(other, words)).is_open());
    EXPECT_EQ(theirs.usage().size(), 1U) << "its owner still uses it";
  }
  EXPECT_EQ(session_.file_count(), 1U);
}

DROVER_INSTANTIATE_AT_PLACES(MemoryAt);

TEST(Memory, sizes_around_the_ledger_steps_are_allocated) {
  TestSession session;
  Memory memory(session.join());
  for (const std::uint64_t bytes : {kGiB + 1, 3'000'000'000UL, 4 * kGiB - 1, 4 * kGiB + 4097, 9 * kGiB + 5}) {
    EXPECT_GE(memory.allocate(Place::cpu(), bytes).size(), bytes);  // files without pages cost nothing
  }
}

TEST(Memory, a_lease_of_another_session_is_rejected_and_kept_by_the_caller) {
  TestSession one;
  TestSession other;
  Memory memory(one.join());
  Memory elsewhere(other.join());
  const Block block = memory.allocate(Place::cpu(), 1);
  const Block foreign = elsewhere.allocate(Place::cpu(), 1);
  Lease lease = foreign.share();
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(memory.open(std::move(lease))); },
               {"another session"});
  EXPECT_TRUE(lease.is_open());  // NOLINT(bugprone-use-after-move): nothing was taken
}

TEST(Memory, a_locked_ledger_blocks_no_allocation) {
  TestSession session;
  const auto self = session.join();
  Memory memory(self, small_slabs());
  const Block first = memory.allocate(Place::cpu(), 1000);
  const auto book = ipc::OpenLedger::open(self, first.lease().slab());
  const ipc::LedgerView view(book->object().layout(), ipc::slab_geometry(book->object().spec()));
  ASSERT_TRUE(try_lock(view.pool.header.lock, 700, 1));
  const Block second = memory.allocate(Place::cpu(), 1000);
  EXPECT_NE(second.lease().slab(), first.lease().slab());
  const auto usage = memory.usage();
  ASSERT_EQ(usage.size(), 2U);
  EXPECT_FALSE(usage[0].is_known);
  EXPECT_TRUE(usage[1].is_known);
  recover(view.pool.header.lock, 700);
}

TEST(Memory, a_corrupt_slab_is_not_used_again) {
  const test::CapturedLog log;
  TestSession session;
  const auto self = session.join();
  Memory memory(self, small_slabs());
  Block first = memory.allocate(Place::cpu(), 1000);
  const auto book = ipc::OpenLedger::open(self, first.lease().slab());
  ipc::LedgerView(book->object().layout(), ipc::slab_geometry(book->object().spec())).header.orphans = 1'000'000;
  const Block second = memory.allocate(Place::cpu(), 1000);
  EXPECT_NE(second.lease().slab(), book->object().handle());
  EXPECT_TRUE(log.contains("is corrupt"));
}

TEST(Memory, misuse_throws) {
  TestSession session;
  Memory memory(session.join());
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(memory.allocate(Place::cpu(), 0)); });
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(memory.open(Lease())); }, {"came with a message"});
  expect_error(Errc::not_found, [&] { static_cast<void>(memory.allocate(Place::parse("host:99"), 1)); },
               {"no device host:99", "drover devices"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(memory.allocate(Place::cpu(), ~std::uint64_t{0})); },
               {"maximum of 4.0 TiB"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Block().bytes()); });
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Block().device_ptr()); });
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Block().place()); });
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Memory(nullptr)); }, {"needs a session"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(Memory(session.join(), {.slab_bytes = 100})); });
}

TEST(Memory, exhaustion_names_the_holders) {
  TestSession session;
  Memory memory(session.join(), small_slabs());
  const Block held = memory.allocate(Place::cpu(), 1500 * kKiB);
  const FaultSeam seam("mmap", ENOMEM);
  expect_error(Errc::out_of_memory, [&] { static_cast<void>(memory.allocate(Place::cpu(), kMiB)); },
               {"slabs mapped here at cpu", "participant 1 has 1.5 MiB", "release what is no longer used"});
}

TEST(Memory, a_slab_whose_file_has_the_wrong_size_is_corrupt) {
  TestSession session;
  const auto maker = session.join();
  const auto other = session.join();
  const auto liar = ipc::OpenLedger::make(maker, 2 * kMiB, make_memory_file("short", 4096));
  Lease lease = liar->allocate(100);
  const ipc::SentLease words = ipc::OpenLedger::to_send(lease, *maker);
  ipc::OpenLedger::begin_sending(lease);
  ipc::OpenLedger::sent(lease);
  Memory memory(other);
  Lease received = ipc::OpenLedger::receive(other, words);
  expect_error(Errc::corrupt, [&] { static_cast<void>(memory.open(std::move(received))); }, {"a different size"});
}

TEST(Memory, a_slab_of_an_unknown_device_throws) {
  TestSession session;
  const auto maker = session.join();
  const auto book = ipc::OpenLedger::make(maker, 2 * kMiB, make_memory_file("elsewhere", 2 * kMiB), {1, 77, 78});
  Memory memory(maker);
  expect_error(Errc::not_found, [&] { static_cast<void>(memory.open(book->allocate(100))); });
  const auto nonsense = ipc::OpenLedger::make(maker, 2 * kMiB, make_memory_file("nonsense", 2 * kMiB), {9, 0, 0});
  expect_error(Errc::corrupt, [&] { static_cast<void>(memory.open(nonsense->allocate(100))); },
               {"unknown backend 8"});
}

}  // namespace
}  // namespace drover::tensor
