// The crash table of Queue: which process dies where, and what the others see. docs/crash_tables.md names these
// tests.
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/queue/queue_core.hpp"
#include "support/peer_group.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::PeerGroup;
using test::PeerMode;
using test::PeerOutcome;
using test::TestSession;

constexpr std::size_t kPool = 1 << 20;
constexpr QueueOptions kOptions{.capacity = 4, .bytes = kPool, .in_flight = 2};

std::string message_text(std::size_t bytes) { return std::string(bytes, 'm'); }

// The start of every body here: a participant and the queue.
struct Part {
  explicit Part(test::Peer& peer)
      : invited(test::accept_invitation(peer.channel())),
        core(std::make_shared<QueueCore>(SharedObject(invited.membership, invited.handles.at(0), ObjectKind::queue))),
        bytes(std::stoul(peer.parameter("bytes"))) {}

  test::Invited invited;
  std::shared_ptr<QueueCore> core;
  RingCursors cursors;
  std::size_t bytes;
};

// Puts one message, stopping between the steps of a put.
DROVER_PEER_BODY(producer_by_steps) {
  Part part(peer);
  const Owner me = part.invited.membership->self();
  const Ring& ring = part.core->view().ring;
  peer.reach("before");
  Loan loan = part.core->loan(part.bytes, Deadline::never());
  peer.reach("with a loan");
  const auto position = ring.claim_for_writing(part.cursors, me);
  peer.reach("with a slot");
  ring.slot(*position).record.store_head(RecordHead::of(part.bytes, Storage::small));
  peer.reach("half written");
  ring.abandon(*position, me);
  if (part.core->publish(loan, Deadline::never()) != PutResult::put) throw std::runtime_error("not put");
  peer.reach("after the put");
}

// Takes one message, stopping between the steps of a get.
DROVER_PEER_BODY(consumer_by_steps) {
  Part part(peer);
  const Owner me = part.invited.membership->self();
  const Ring& ring = part.core->view().ring;
  peer.reach("before");
  ReadScan scan;
  const auto position = ring.claim_for_reading(part.cursors, me, scan);
  peer.reach("with a slot");
  ring.finish(*position, me);
  peer.reach("after the get");
}

DROVER_PEER_BODY(consumer_of_deliveries) {
  Part part(peer);
  Delivery delivery;
  static_cast<void>(part.core->receive(delivery, Deadline::never()));
  peer.reach("with a delivery");
  delivery.done();
  peer.reach("after done");
}

DROVER_PEER_BODY(consumer_of_messages) {
  Part part(peer);
  Message message;
  static_cast<void>(part.core->get(message, Deadline::never()));
  peer.reach("with a message");
}

DROVER_PEER_BODY(sleeping_consumer) {
  Part part(peer);
  peer.channel().send("going to sleep");
  Message message;
  static_cast<void>(part.core->get(message, Deadline::never()));
}

class QueueCrash : public ::testing::TestWithParam<PeerMode> {
 protected:
  // Runs one peer up to `point`, where it dies, and recovers it.
  void die(const char* body, const char* point, std::size_t bytes) {
    PeerGroup group(body, {.mode = GetParam(), .size = 1}, {{"bytes", std::to_string(bytes)}});
    group.kill_at(0, point);
    group.start();
    const Owner owner = session.invite(group.channel(0), std::vector{queue.handle()});
    ASSERT_EQ(group.wait(Deadline::never()).front().kind, PeerOutcome::Kind::abandoned);
    session.recover(owner);
  }
  std::optional<std::string> get_now() {
    Message message;
    if (queue.try_get(message) != GetResult::got) return std::nullopt;
    is_redelivered = message.is_redelivered();
    key = message.key();
    return std::string(message.text());
  }
  // The queue is as new: no record, no block, no flight; all slots can be used.
  void expect_clean() {
    EXPECT_EQ(get_now(), std::nullopt);
    const QueueView view(core->object().layout(), queue_geometry(core->object().spec()));
    EXPECT_EQ(view.pool.used_blocks(), 0U);
    for (std::uint64_t i = 0; i < view.flight_count; ++i) {
      EXPECT_EQ(state_of(view.flights[i].word.load()), RingSlotState::free);
    }
    for (std::uint64_t i = 0; i < kOptions.capacity; ++i)
      ASSERT_EQ(queue.put("x", Deadline::after({})), PutResult::put);
    for (std::uint64_t i = 0; i < kOptions.capacity; ++i) ASSERT_EQ(get_now(), "x");
    EXPECT_EQ(session.table().size(), 1U) << "no overflow object is left";
  }

  TestSession session;
  std::shared_ptr<Membership> self = session.join();
  Queue queue{self, kOptions};
  std::shared_ptr<QueueCore> core =
      std::make_shared<QueueCore>(SharedObject(self, queue.handle(), ObjectKind::queue));
  bool is_redelivered = false;
  MessageKey key = 0;
};

constexpr std::array<std::size_t, 3> kSizes = {10, 500, 5000};

TEST_P(QueueCrash, a_producer_that_dies_before_it_published_leaves_nothing) {
  for (const char* point : {"before", "with a loan", "with a slot", "half written"}) {
    SCOPED_TRACE(point);
    die("producer_by_steps", point, 5000);
    expect_clean();
  }
}

TEST_P(QueueCrash, records_published_by_a_dead_producer_are_delivered) {
  die("producer_by_steps", "after the put", 5000);
  const auto text = get_now();
  ASSERT_TRUE(text);
  EXPECT_EQ(text->size(), 5000U);
  expect_clean();
}

TEST_P(QueueCrash, records_behind_a_half_written_one_are_delivered) {
  die("producer_by_steps", "half written", 5000);
  ASSERT_EQ(queue.put("next"), PutResult::put);
  EXPECT_EQ(get_now(), "next");
  expect_clean();
}

TEST_P(QueueCrash, a_consumer_that_dies_during_a_get_leaves_the_message_to_others) {
  for (const std::size_t bytes : kSizes) {
    ASSERT_EQ(queue.put(message_text(bytes)), PutResult::put);
    ASSERT_EQ(queue.put("behind it"), PutResult::put);
    die("consumer_by_steps", "with a slot", bytes);
    EXPECT_EQ(get_now(), message_text(bytes)) << "before later messages";
    EXPECT_TRUE(is_redelivered);
    EXPECT_EQ(get_now(), "behind it");
    EXPECT_FALSE(is_redelivered);
    expect_clean();
  }
}

TEST_P(QueueCrash, a_consumer_that_dies_with_a_delivery_leaves_it_to_others_under_its_key) {
  for (const std::size_t bytes : kSizes) {
    ASSERT_EQ(queue.put(message_text(bytes)), PutResult::put);
    die("consumer_of_deliveries", "with a delivery", bytes);
    die("consumer_of_deliveries", "with a delivery", bytes);  // and the next consumer too
    Delivery delivery;
    ASSERT_EQ(queue.receive(delivery, Deadline::after({})), GetResult::got);
    EXPECT_EQ(delivery.text(), message_text(bytes));
    EXPECT_TRUE(delivery.is_redelivered());
    delivery.done();
    expect_clean();
  }
}

TEST_P(QueueCrash, a_finished_delivery_is_not_repeated) {
  for (const std::size_t bytes : kSizes) {
    ASSERT_EQ(queue.put(message_text(bytes)), PutResult::put);
    die("consumer_of_deliveries", "after done", bytes);
    expect_clean();
  }
}

TEST_P(QueueCrash, a_message_dies_with_its_consumer_and_its_memory_is_freed) {
  for (const std::size_t bytes : kSizes) {
    ASSERT_EQ(queue.put(message_text(bytes)), PutResult::put);
    die("consumer_of_messages", "with a message", bytes);
    expect_clean();
  }
}

TEST_P(QueueCrash, a_record_in_flight_whose_slot_was_not_freed_is_delivered_once) {
  ASSERT_EQ(queue.put("twice?"), PutResult::put);
  const auto dead = session.join();
  static_cast<void>(dead->open(queue.handle()));
  {  // by hand: the instant between the two steps
    const QueueView view(core->object().layout(), queue_geometry(core->object().spec()));
    RingCursors cursors;
    ReadScan scan;
    const auto position = view.ring.claim_for_reading(cursors, dead->self(), scan);
    ASSERT_TRUE(position);
    view.flights[1].position = *position;
    view.flights[1].record.copy_from(view.ring.slot(*position).record);
    view.flights[1].word = make_slot_word(0, RingSlotState::reading, dead->self());
  }
  session.recover(dead->self());
  EXPECT_EQ(get_now(), "twice?");
  expect_clean();
}

TEST_P(QueueCrash, the_get_that_waits_for_a_dead_only_producer_ends) {
  PeerGroup group("sleeping_consumer", {.mode = GetParam(), .size = 1},
                  {{"bytes", "0"}});  // opens the queue and puts nothing
  group.start();
  const Owner owner = session.invite(group.channel(0), std::vector{queue.handle()});
  EXPECT_EQ(group.receive_text(0), "going to sleep");
  Message message;
  EXPECT_EQ(queue.try_get(message), GetResult::timed_out) << "a peer is still there";
  if (GetParam() == PeerMode::processes) {
    group.kill(0);
  } else {
    ASSERT_EQ(queue.put("wake up"), PutResult::put);
  }
  static_cast<void>(group.wait(Deadline::never()));
  session.recover(owner);
  Queue reader(self, queue.handle());  // a handle that has put nothing
  EXPECT_EQ(reader.get(message), GetResult::peer_lost);
}

TEST_P(QueueCrash, the_put_that_waits_for_a_dead_only_consumer_ends) {
  for (std::uint64_t i = 0; i < kOptions.capacity; ++i) ASSERT_EQ(queue.put("x"), PutResult::put);
  die("consumer_by_steps", "before", 0);
  EXPECT_EQ(queue.put("y"), PutResult::peer_lost);
  EXPECT_EQ(queue.put(message_text(5000)), PutResult::peer_lost);
}

TEST_P(QueueCrash, a_sleeper_that_dies_takes_no_wake_up_with_it) {
  if (GetParam() == PeerMode::threads) return;  // a sleeping thread cannot be killed
  PeerGroup group("sleeping_consumer", {.mode = GetParam(), .size = 3}, {{"bytes", "0"}});
  group.start();
  std::vector<Owner> owners;
  for (int rank = 0; rank < 3; ++rank) {
    owners.push_back(session.invite(group.channel(rank), std::vector{queue.handle()}));
    EXPECT_EQ(group.receive_text(rank), "going to sleep");
  }
  group.kill(0);
  ASSERT_EQ(queue.put("a"), PutResult::put);
  ASSERT_EQ(queue.put("b"), PutResult::put);
  const auto outcomes = group.wait(Deadline::never());  // each of the others gets one
  EXPECT_EQ(outcomes[1].kind, PeerOutcome::Kind::success);
  EXPECT_EQ(outcomes[2].kind, PeerOutcome::Kind::success);
  session.recover(owners[0]);
  expect_clean();
}

INSTANTIATE_TEST_SUITE_P(Queue, QueueCrash, ::testing::Values(PeerMode::threads, PeerMode::processes),
                         [](const auto& mode) { return to_string(mode.param); });

}  // namespace
}  // namespace drover::ipc
