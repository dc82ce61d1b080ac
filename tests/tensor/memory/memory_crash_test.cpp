// Blocks between processes of a session that are killed.
#include <csignal>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/session/session.hpp"
#include "drover/tensor/memory.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::uint64_t kMark = 0x5eed'0000'0000'0007;
constexpr std::uint64_t kBytes = 3 * kMiB;
constexpr std::uint64_t kSlack = 16 * kMiB;  // what a GPU's driver may keep

// Sends a block that holds the mark.
void send_marked(Memory& memory, Queue& queue, const Place& place) {
  Block block = memory.allocate(place, kBytes);
  write_number(block, kMark);
  std::vector<Lease> leases;
  leases.push_back(block.take_lease());
  ASSERT_EQ(queue.put({}, leases), PutResult::put);
}

// Receives a message and opens its block.
Block receive_block(Memory& memory, Queue& queue) {
  Message message;
  if (queue.get(message, Deadline::after(std::chrono::seconds(60))) != GetResult::got) return {};
  return memory.open(std::move(message.take_leases().at(0)));
}

}  // namespace

// Makes a block, sends it, then waits to be killed.
DROVER_PEER_BODY(block_producer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  peer.reach("ready");
  send_marked(memory, queue, Place::parse(peer.parameter("place")));
  peer.reach("sent");
}

// Receives a block, checks it, forwards or keeps it, then waits to be killed.
DROVER_PEER_BODY(block_consumer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  Block block = receive_block(memory, queue);
  EXPECT_EQ(read_number(block), kMark);
  if (peer.parameter("does") == "send on") {
    std::vector<Lease> leases;
    leases.push_back(block.take_lease());
    ASSERT_EQ(queue.put({}, leases), PutResult::put);
  }
  peer.reach("holding");
}

class MemoryCrash : public PlaceTest {
 protected:
  void SetUp() override {
    PlaceTest::SetUp();
    if (IsSkipped()) return;
    if (place().is_device) static_cast<void>(backend_of(place().backend).open(place().index));  // its context stays
    used_before_ = used();
  }
  // Also after a failure, so that the next test starts with all memory free.
  void TearDown() override {
    if (IsSkipped()) return;
    const std::uint64_t slack = place().backend == BackendKind::cuda ? kSlack : 0;
    EXPECT_TRUE(eventually([&] { return used() <= used_before_ + slack; })) << "memory was leaked";
  }

  [[nodiscard]] static std::uint64_t used() {
    return place().is_device ? backend_of(place().backend).memory_info(place().index).used() : 0;
  }
  [[nodiscard]] static PeerGroup peer(const char* body, const char* does = "") {
    return PeerGroup(body, {.mode = PeerMode::processes, .size = 1}, {{"place", GetParam()}, {"does", does}});
  }
  // Starts a peer, kills it at a point, and waits until the keeper has noticed.
  static void run_until_killed(PeerGroup& group, const char* point, Session& session, const Queue& queue) {
    const std::uint64_t before = session.population().departed;
    group.kill_at(0, point);
    group.start();
    send_invitation(group.channel(0), session, queue.handle().to_string());
    EXPECT_EQ(group.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
    ASSERT_TRUE(eventually([&] { return session.population().departed == before + 1; }));
  }

 private:
  std::uint64_t used_before_ = 0;
};

TEST_P(MemoryCrash, a_block_outlives_the_process_that_made_and_sent_it) {
  Session session = Session::start();
  Queue queue(session);
  auto producer = peer("block_producer");
  run_until_killed(producer, "sent", session, queue);
  Memory memory(session);
  const Block block = receive_block(memory, queue);
  ASSERT_TRUE(block.is_open());
  EXPECT_EQ(block.place(), place());
  EXPECT_EQ(read_number(block), kMark);
}

TEST_P(MemoryCrash, a_producer_killed_before_it_sends_leaves_nothing) {
  Session session = Session::start();
  Queue queue(session);
  auto producer = peer("block_producer");
  run_until_killed(producer, "ready", session, queue);
  EXPECT_EQ(queue.size(), 0U);
}

TEST_P(MemoryCrash, a_killed_consumer_releases_its_block) {
  Session session = Session::start();
  Queue queue(session);
  Memory memory(session);
  send_marked(memory, queue, place());
  auto consumer = peer("block_consumer");
  run_until_killed(consumer, "holding", session, queue);
  EXPECT_TRUE(eventually([&] {
    const auto usage = memory.usage();
    return usage.empty() || usage.at(0).blocks == 0;
  }));
}

TEST_P(MemoryCrash, a_block_can_be_forwarded_by_a_process_that_dies) {
  Session session = Session::start();
  Queue queue(session);
  auto producer = peer("block_producer");
  run_until_killed(producer, "sent", session, queue);
  auto consumer = peer("block_consumer", "send on");
  run_until_killed(consumer, "holding", session, queue);
  Memory memory(session);
  EXPECT_EQ(read_number(receive_block(memory, queue)), kMark);
}

TEST_P(MemoryCrash, without_a_keeper_allocation_throws_and_mappings_stay_valid) {
  Session session = Session::start();
  Memory memory(session);
  const Block block = memory.allocate(place(), kBytes);
  write_number(block, kMark);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGKILL), 0);
  expect_error(Errc::peer_lost, [&] {
    for (int slab = 0; slab < 100; ++slab) static_cast<void>(memory.allocate(place(), 65 * kMiB));
  });
  EXPECT_EQ(read_number(block), kMark);
}

DROVER_INSTANTIATE_AT_PLACES(MemoryCrash);

// The device is full of memory that this process keeps; the keeper closes it a moment after it was given back.
TEST(MemoryOfASession, memory_that_was_given_back_can_be_allocated_again) {
  ASSERT_EQ(reason_to_skip(BackendKind::host), "");
  const Place place = Place::parse("host:0");
  const std::uint64_t all = backend_of(BackendKind::host).memory_info(0).free;
  {
    const Session session = Session::start();
    Memory memory(session);
    memory.allocate(place, all - 64 * kMiB).release();
    EXPECT_TRUE(memory.allocate(place, all - 32 * kMiB).is_open());
  }
  EXPECT_TRUE(eventually([&] { return backend_of(BackendKind::host).memory_info(0).free == all; }));
}

}  // namespace drover::test
