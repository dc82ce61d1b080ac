// Tensors between processes of a session that are killed.
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/session/session.hpp"
#include "drover/tensor/send.hpp"
#include "drover/tensor/tensor.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kCrashCount = 3 * 1024 * 1024;
constexpr double kCrashSum = 7.0 * kCrashCount;

}  // namespace

// Sends a tensor whose last work is done, or waits before a gate; then waits to be killed, or exits cleanly.
DROVER_PEER_BODY(tensor_producer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  const Place place = Place::parse(peer.parameter("place"));
  const Tensor tensor = zeros(memory, DType::uint8, {kCrashCount}, place);
  std::unique_ptr<Gate> gate;
  if (peer.parameter("does") == "unfinished") {
    gate = std::make_unique<Gate>(place);
    gate->fill(tensor, 7);
  } else {
    tensor.fill(7);
    if (peer.parameter("does") == "finished") tensor.synchronize();
  }
  ASSERT_EQ(put(queue, tensor), PutResult::put);
  peer.reach("sent");
}

// Receives a tensor, sends a copy of it without reading it, then waits to be killed.
DROVER_PEER_BODY(tensor_relay) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  const Tensor tensor = receive_tensor(memory, queue);
  ASSERT_EQ(put(queue, tensor.copy()), PutResult::put);
  peer.reach("relayed");
}

class TensorCrash : public PlaceTest {
 protected:
  [[nodiscard]] static PeerGroup peer(const char* body, const char* does) {
    return PeerGroup(body, {.mode = PeerMode::processes, .size = 1}, {{"place", GetParam()}, {"does", does}});
  }
  // Starts a peer and waits until it reaches a point.
  void start(PeerGroup& group, const char* point) {
    group.hold_at(0, point);
    group.start();
    send_invitation(group.channel(0), session_, queue_.handle().to_string());
    group.wait_until_held(0, point);
  }
  // Kills it, and waits until the keeper has noticed.
  void kill(PeerGroup& group) {
    const std::uint64_t before = session_.population().departed;
    group.kill(0);
    EXPECT_EQ(group.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
    ASSERT_TRUE(eventually([&] { return session_.population().departed == before + 1; }));
  }

  Session session_ = Session::start();
  Queue queue_{session_};
  Memory memory_{session_};
};

TEST_P(TensorCrash, finished_work_outlives_a_killed_producer) {
  auto producer = peer("tensor_producer", "finished");
  start(producer, "sent");
  kill(producer);
  EXPECT_EQ(sum(receive_tensor(memory_, queue_)), kCrashSum);
}

TEST_P(TensorCrash, a_producer_that_exits_cleanly_finishes_its_work) {
  auto producer = peer("tensor_producer", "submitted");
  producer.start();
  send_invitation(producer.channel(0), session_, queue_.handle().to_string());
  EXPECT_EQ(producer.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::success);
  EXPECT_EQ(sum(receive_tensor(memory_, queue_)), kCrashSum);
}

DROVER_INSTANTIATE_AT_PLACES(TensorCrash);

class TensorCrashOnDevice : public TensorCrash {};

TEST_P(TensorCrashOnDevice, unfinished_work_of_a_killed_producer_throws_for_later_users) {
  auto producer = peer("tensor_producer", "unfinished");
  start(producer, "sent");
  kill(producer);
  Tensor tensor;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(get(queue_, memory_, tensor)); },
               {"before its work on them was done"});
}

TEST_P(TensorCrashOnDevice, a_stream_wait_for_a_killed_producer_throws) {
  auto producer = peer("tensor_producer", "unfinished");
  start(producer, "sent");
  const Tensor tensor = receive_tensor(memory_, queue_);
  EXPECT_FALSE(tensor.is_ready());
  const Tensor copied = tensor.to(Place::cpu());
  const Tensor again = tensor.copy();
  kill(producer);
  expect_error(Errc::peer_lost, [&] { static_cast<void>(sum(copied)); });
  expect_error(Errc::peer_lost, [&] { tensor.synchronize(); });
  expect_error(Errc::peer_lost, [&] { static_cast<void>(put(queue_, again)); });
  EXPECT_EQ(sum(full(memory_, DType::uint8, {100}, 2, place())), 200.0) << "the stream still works";
}

TEST_P(TensorCrashOnDevice, results_derived_from_lost_work_are_lost) {
  auto producer = peer("tensor_producer", "unfinished");
  start(producer, "sent");
  auto relay = peer("tensor_relay", "");
  start(relay, "relayed");
  kill(producer);
  Tensor tensor;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(get(queue_, memory_, tensor)); });
  kill(relay);
}

TEST_P(TensorCrashOnDevice, a_consumer_killed_while_its_stream_waits_does_not_affect_others) {
  Gate gate(place());
  const Tensor tensor = zeros(memory_, DType::uint8, {kCrashCount}, place());
  gate.fill(tensor, 7);
  ASSERT_EQ(put(queue_, tensor), PutResult::put);
  auto relay = peer("tensor_relay", "");
  start(relay, "relayed");
  kill(relay);
  Tensor copied;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(get(queue_, memory_, copied)); });
  EXPECT_FALSE(tensor.is_ready());
  gate.open();
  EXPECT_EQ(sum(tensor), kCrashSum);
}

TEST_P(TensorCrashOnDevice, waiting_without_a_keeper_throws) {
  auto producer = peer("tensor_producer", "unfinished");
  start(producer, "sent");
  const Tensor tensor = receive_tensor(memory_, queue_);
  const Tensor copied = tensor.to(Place::cpu());
  ASSERT_EQ(::kill(session_.keeper_pid(), SIGKILL), 0);
  expect_error(Errc::peer_lost, [&] { static_cast<void>(sum(copied)); });
  expect_error(Errc::peer_lost, [&] { tensor.synchronize(); });
  producer.kill(0);
  static_cast<void>(producer.wait(Deadline::never()));
}

DROVER_INSTANTIATE_ON_DEVICES(TensorCrashOnDevice);

}  // namespace drover::test
