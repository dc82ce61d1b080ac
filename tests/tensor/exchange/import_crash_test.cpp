// Memory of other libraries between processes that are killed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/session/session.hpp"
#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/send.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "tensor/exchange/foreign_support.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kCount = 300'000;

}  // namespace

// Sends memory of another library twice, then waits to be killed or released.
DROVER_PEER_BODY(foreign_producer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  ForeignNumbers numbers(Place::parse(peer.parameter("place")), peer.parameter("kind"), kCount);
  const Imported imported = import_tensor(memory, numbers.array());
  ASSERT_EQ(imported.way, way_of(peer.parameter("kind")));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(put(queue, imported.tensor), PutResult::put);
  peer.reach("sent");
}

// Receives a tensor, writes to it, and releases it.
DROVER_PEER_BODY(foreign_consumer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  Tensor tensor = receive_tensor(memory, queue);
  ASSERT_EQ(sum(tensor), static_cast<double>(kCount * (kCount - 1) / 2));
  tensor.fill(2);
  tensor.synchronize();
  peer.reach("got");
  tensor = Tensor();
  peer.reach("released");
}

class ForeignCrash : public PlaceTest {
 protected:
  [[nodiscard]] static PeerGroup peer(const char* body, const std::string& kind) {
    return PeerGroup(body, {.mode = PeerMode::processes, .size = 1}, {{"place", GetParam()}, {"kind", kind}});
  }
  void start(PeerGroup& group, const char* point) {
    group.start();
    send_invitation(group.channel(0), session_, queue_.handle().to_string());
    group.wait_until_held(0, point);
  }
  void kill(PeerGroup& group) {
    const std::uint64_t before = session_.population().departed;
    group.kill(0);
    EXPECT_EQ(group.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
    ASSERT_TRUE(eventually([&] { return session_.population().departed == before + 1; }));
  }
  [[nodiscard]] bool are_released(const ForeignNumbers& numbers) {
    return eventually([&] { return memory_.usage().empty() && numbers.kept() == 0; });
  }

  Session session_ = Session::start();
  Queue queue_{session_};
  Memory memory_{session_};
};

TEST_P(ForeignCrash, both_processes_have_the_same_memory) {
  for (const std::string kind : {"allocated", "mapped"}) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kCount);
    const Tensor imported = import_tensor(memory_, numbers.array()).tensor;
    ASSERT_EQ(put(queue_, imported), PutResult::put);
    auto consumer = peer("foreign_consumer", kind);
    consumer.hold_at(0, "got");
    start(consumer, "got");
    EXPECT_EQ(sum(imported), 2.0 * kCount);
    consumer.release(0);
    consumer.expect_success();
  }
}

TEST_P(ForeignCrash, keep_alive_is_held_until_the_consumer_releases_it) {
  for (const std::string kind : {"allocated", "mapped"}) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kCount);
    ASSERT_EQ(put(queue_, import_tensor(memory_, numbers.array()).tensor), PutResult::put);
    auto consumer = peer("foreign_consumer", kind);
    consumer.hold_at(0, "got");
    consumer.hold_at(0, "released");
    start(consumer, "got");
    memory_.trim();
    EXPECT_EQ(numbers.kept(), 1);
    consumer.release(0);
    consumer.wait_until_held(0, "released");
    EXPECT_TRUE(are_released(numbers)) << "although the consumer lives";
    consumer.release(0);
    consumer.expect_success();
  }
}

TEST_P(ForeignCrash, a_killed_consumer_releases_its_memory) {
  for (const std::string kind : {"allocated", "mapped"}) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kCount);
    ASSERT_EQ(put(queue_, import_tensor(memory_, numbers.array()).tensor), PutResult::put);
    auto consumer = peer("foreign_consumer", kind);
    consumer.hold_at(0, "got");
    start(consumer, "got");
    EXPECT_EQ(numbers.kept(), 1);
    kill(consumer);
    EXPECT_TRUE(are_released(numbers));
  }
}

TEST_P(ForeignCrash, retained_memory_outlives_a_killed_producer) {
  auto producer = peer("foreign_producer", "mapped");
  producer.hold_at(0, "sent");
  start(producer, "sent");
  kill(producer);
  EXPECT_EQ(sum(receive_tensor(memory_, queue_)), static_cast<double>(kCount * (kCount - 1) / 2));
}

TEST_P(ForeignCrash, opening_a_handle_of_a_killed_producer_throws) {
  auto producer = peer("foreign_producer", "allocated");
  producer.hold_at(0, "sent");
  start(producer, "sent");
  kill(producer);
  Tensor tensor;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(get(queue_, memory_, tensor)); },
               {"that process is gone", "import it with may_share = false"});
  EXPECT_EQ(sum(full(memory_, DType::uint8, {100}, 2, place())), 200.0) << "other memory still works";
}

TEST_P(ForeignCrash, an_open_handle_of_a_killed_producer_is_not_used) {
  const Memory memory(session_, {.idle_bytes = kGiB, .idle_time = std::chrono::hours(1)});
  auto producer = peer("foreign_producer", "allocated");
  producer.hold_at(0, "sent");
  start(producer, "sent");
  EXPECT_EQ(sum(receive_tensor(memory, queue_)), static_cast<double>(kCount * (kCount - 1) / 2));
  const auto slabs = memory.usage();
  ASSERT_EQ(std::ranges::count(slabs, false, &SlabUsage::is_own), 1) << "kept open for later tensors";
  kill(producer);
  Tensor tensor;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(get(queue_, memory, tensor)); }, {"that process is gone"});
}

DROVER_INSTANTIATE_ON_DEVICES(ForeignCrash);

}  // namespace drover::test
