// Stops a process after every single instruction, lets others continue, and resumes it: one preemption at every
// possible place of the real code. The model covers all interleavings of its own steps; this test covers machine
// instructions.
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "drover/ipc/queue.hpp"
#include "drover/ipc/value.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "support/single_step.hpp"
#include "torture/queue_probe.hpp"

namespace drover::test {
namespace {

constexpr QueueOptions kOvertakeOptions{.capacity = 3, .bytes = 16384, .in_flight = 2};
constexpr Owner kDead = 900;
constexpr std::uint64_t kPeersNumber = 1'000'000;

Deadline now() { return Deadline::after({}); }

// Recovers a dead participant, as the keeper does.
DROVER_STEPPED(recover_the_dead) {
  const OpenObject queue = invited.membership->open(invited.handles.at(0));
  StepMarks::begin();
  ipc::queue_kind.recover(ipc::layout_of(queue.data), queue.spec, kDead);
  StepMarks::end();
}

DROVER_STEPPED(put_one) {
  Queue queue(invited.membership, invited.handles.at(0));
  const std::string message = numbered_message(kPeersNumber, 40);
  StepMarks::begin();
  static_cast<void>(queue.put(message));
  StepMarks::end();
}

DROVER_STEPPED(get_one) {
  Queue queue(invited.membership, invited.handles.at(0));
  Value<std::uint64_t> taken(invited.membership, invited.handles.at(1));
  Message message;
  StepMarks::begin();
  if (queue.get(message) == GetResult::got) taken.store(number_of(message.bytes()));
  StepMarks::end();
}

DROVER_STEPPED(receive_and_finish_one) {
  Queue queue(invited.membership, invited.handles.at(0));
  Value<std::uint64_t> taken(invited.membership, invited.handles.at(1));
  Delivery delivery;
  StepMarks::begin();
  if (queue.receive(delivery) == GetResult::got) {
    taken.store(number_of(delivery.bytes()));
    delivery.done();
  }
  StepMarks::end();
}

class Overtake : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_single_steps(); !why.empty()) GTEST_SKIP() << why;
  }

  void put(std::size_t bytes = 40) {
    ASSERT_EQ(queue_.put(numbered_message(++last_number_, bytes), now()), PutResult::put);
    deliveries_[last_number_];
  }

  // A slot held by a stopped consumer blocks the producers one lap later.
  void put_if_there_is_room() {
    if (queue_.put(numbered_message(last_number_ + 1, 40), now()) == PutResult::put) deliveries_[++last_number_];
  }

  bool take_one() {
    Delivery delivery;
    if (other_.receive(delivery, now()) != GetResult::got) return false;
    ++deliveries_[number_of(delivery.bytes())];
    delivery.done();
    return true;
  }
  void take_all() {
    while (take_one()) continue;
  }

  void note_taken_by_peer() {
    if (taken_.load() != 0) ++deliveries_[taken_.load()];
    taken_.store(0);
  }

  void expect_each_once() {
    take_all();
    for (const auto& [number, count] : deliveries_) EXPECT_EQ(count, 1) << "deliveries of message " << number;
    deliveries_.clear();
    EXPECT_EQ(probe_.not_free(), "");
    EXPECT_EQ(probe_.used_blocks(), 0U);
  }

  [[nodiscard]] ipc::QueueView view() const {
    const OpenObject object = member_->open(queue_.handle());
    return {ipc::layout_of(object.data), ipc::queue_geometry(object.spec)};
  }

  // As if the consumer of the oldest message had been killed after keeping it in flight and before freeing its slot,
  // and another consumer had died earlier, so that everybody searches.
  void let_dead_have_slot_and_flight() {
    const ipc::QueueView queue = view();
    ipc::ReadScan scan;
    ipc::RingCursors cursors;
    const auto position = queue.ring.claim_for_reading(cursors, kDead, scan);
    ASSERT_TRUE(position.has_value());
    ipc::Flight& flight = queue.flights[0];
    ASSERT_EQ(ipc::state_of(flight.word.load()), ipc::RingSlotState::free);
    flight.position = *position;
    flight.record.copy_from(queue.ring.slot(*position).record);
    flight.word = ipc::make_slot_word(flight.word.load() >> ipc::kLapShift, ipc::RingSlotState::reading, kDead);
    ++queue.ring.head().returned_epoch;
  }

  // One slot is half written, one is being read.
  void let_dead_have_slots() {
    const ipc::QueueView queue = view();
    ipc::ReadScan scan;
    ipc::RingCursors cursors;
    ASSERT_TRUE(queue.ring.claim_for_reading(cursors, kDead, scan).has_value());
    ASSERT_TRUE(queue.ring.claim_for_writing(cursors, kDead).has_value());
    ++queue.ring.head().returned_epoch;
  }

  std::size_t overtake(const std::string& body, const OvertakeChecks& checks) {
    SingleStepper stepper(session_, body, {queue_.handle(), taken_.handle()});
    stepper.on_sleep([this] { put(); });
    return overtake_at_every_instruction(stepper, checks);
  }

  TestSession session_;
  std::shared_ptr<Membership> member_ = session_.join();
  std::shared_ptr<Membership> other_member_ = session_.join();
  Queue queue_{member_, kOvertakeOptions};
  Queue other_{other_member_, queue_.handle()};
  Value<std::uint64_t> taken_{member_, 0};
  QueueProbe probe_{member_->open(queue_.handle())};
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, int> deliveries_;
};

TEST_F(Overtake, consumer_overtakes_recovery_of_one_who_had_slot_and_flight) {
  const auto prepare = [this] {
    put();
    let_dead_have_slot_and_flight();
  };
  EXPECT_GT(
      overtake("recover_the_dead",
               {.prepare = prepare, .overtake = [this] { take_all(); }, .check = [this] { expect_each_once(); }}),
      100U);
}

TEST_F(Overtake, producer_and_consumer_overtake_recovery_of_slots) {
  const auto prepare = [this] {
    put();
    let_dead_have_slots();
  };
  const auto overtake_both = [this] {
    take_all();
    put();
    take_all();
  };
  EXPECT_GT(overtake("recover_the_dead",
                     {.prepare = prepare, .overtake = overtake_both, .check = [this] { expect_each_once(); }}),
            100U);
}

TEST_F(Overtake, others_overtake_a_producer) {
  const auto prepare = [this] { deliveries_[kPeersNumber]; };
  const auto go_round = [this] {
    for (std::uint64_t i = 0; i + 1 < kOvertakeOptions.capacity; ++i) put();
    take_all();
  };
  EXPECT_GT(overtake("put_one", {.prepare = prepare, .overtake = go_round, .check = [this] { expect_each_once(); }}),
            50U);
}

TEST_F(Overtake, others_overtake_one_who_gets) {
  const auto check = [this] {
    note_taken_by_peer();
    expect_each_once();
  };
  const auto go_round = [this] {
    for (int round = 0; round < 2; ++round) {
      take_all();
      put_if_there_is_room();
    }
  };
  EXPECT_GT(overtake("get_one", {.prepare = [this] { put(), put(); }, .overtake = go_round, .check = check}), 50U);
}

TEST_F(Overtake, others_overtake_one_who_receives) {
  const auto check = [this] {
    note_taken_by_peer();
    expect_each_once();
  };
  const auto go_round = [this] {
    for (int round = 0; round < 2; ++round) {
      take_all();
      put_if_there_is_room();
    }
  };
  EXPECT_GT(
      overtake("receive_and_finish_one", {.prepare = [this] { put(), put(); }, .overtake = go_round, .check = check}),
      50U);
}

}  // namespace
}  // namespace drover::test
