// Kills a producer or consumer after every single instruction: every message put is delivered, none is delivered
// twice under the same key, and every slot, flight and block becomes free again.
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/ipc/queue.hpp"
#include "support/single_step.hpp"
#include "torture/queue_probe.hpp"

namespace drover::test {
namespace {

constexpr std::size_t kSmall = 40;
constexpr std::size_t kTwoLines = 90;
constexpr std::size_t kInlined = 300;
constexpr std::size_t kBlock = 1500;
constexpr QueueOptions kStepOptions{.capacity = 3, .bytes = 16384, .in_flight = 2};

void step_put(const Invited& invited, std::size_t bytes) {
  Queue queue = open_queue(invited);
  const std::string message = numbered_message(7, bytes);
  StepMarks::begin();
  static_cast<void>(queue.put(message));
  StepMarks::end();
}
DROVER_STEPPED(put_small) { step_put(invited, kSmall); }
DROVER_STEPPED(put_two_lines) { step_put(invited, kTwoLines); }
DROVER_STEPPED(put_inlined) { step_put(invited, kInlined); }
DROVER_STEPPED(put_block) { step_put(invited, kBlock); }

DROVER_STEPPED(loan_and_publish) {
  Queue queue = open_queue(invited);
  const std::string message = numbered_message(7, kBlock);
  StepMarks::begin();
  Loan loan = queue.loan(kBlock);
  std::memcpy(loan.bytes().data(), message.data(), message.size());
  static_cast<void>(queue.publish(loan));
  StepMarks::end();
}

DROVER_STEPPED(loan_and_drop) {
  Queue queue = open_queue(invited);
  StepMarks::begin();
  {
    const Loan loan = queue.loan(kBlock);
  }
  StepMarks::end();
}

DROVER_STEPPED(get_message) {
  Queue queue = open_queue(invited);
  std::optional<Message> message(std::in_place);
  StepMarks::begin();
  static_cast<void>(queue.get(*message));
  message.reset();
  StepMarks::end();
}

DROVER_STEPPED(receive_message) {
  Queue queue = open_queue(invited);
  Delivery delivery;
  StepMarks::begin();
  static_cast<void>(queue.receive(delivery));
  StepMarks::end();
}

DROVER_STEPPED(finish_message) {
  Queue queue = open_queue(invited);
  Delivery delivery;
  static_cast<void>(queue.receive(delivery));
  StepMarks::begin();
  delivery.done();
  StepMarks::end();
}

DROVER_STEPPED(give_message_back) {
  Queue queue = open_queue(invited);
  Delivery delivery;
  static_cast<void>(queue.receive(delivery));
  StepMarks::begin();
  delivery.give_back();
  StepMarks::end();
}

class QueueSingleStep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_single_steps(); !why.empty()) GTEST_SKIP() << why;
  }

  void put(std::size_t bytes) { ASSERT_EQ(queue_.put(numbered_message(++last_number_, bytes)), PutResult::put); }

  // Every pending message arrives whole and once; afterwards the queue is as good as new.
  void expect_only(const std::set<MessageKey>& owed) {
    std::set<MessageKey> keys;
    for (Message message; other_.try_get(message) == GetResult::got;) {
      EXPECT_NO_THROW(static_cast<void>(number_of(message.bytes())));
      EXPECT_TRUE(keys.insert(message.key()).second) << "message " << message.key() << " was delivered twice";
    }
    EXPECT_EQ(keys, owed);
    expect_whole();
  }

  // In the measuring run nobody has probed the queue before the recovery.
  void check_recovered() {
    expect_only(owed_ ? *owed_ : probe_.owed());
    owed_.reset();
  }

  void expect_whole() {
    EXPECT_EQ(probe_.not_free(), "");
    EXPECT_EQ(probe_.used_blocks(), 0U);
    EXPECT_EQ(probe_.free_bytes(), free_bytes_);
    for (std::uint64_t i = 0; i < kStepOptions.capacity; ++i) {
      ASSERT_EQ(other_.put(numbered_message(100 + i, kSmall), Deadline::after({})), PutResult::put);
    }
    for (std::uint64_t i = 0; i < kStepOptions.capacity; ++i) {
      Message message;
      ASSERT_EQ(queue_.try_get(message), GetResult::got);
      EXPECT_EQ(number_of(message.bytes()), 100 + i);
    }
  }

  std::size_t kill_everywhere(const std::string& body, const std::function<void()>& prepare) {
    SingleStepper stepper(session_, body, {queue_.handle()});
    return kill_at_every_instruction(stepper, {.prepare = prepare,
                                               .check_dead = [this] { owed_ = probe_.owed(); },
                                               .check_recovered = [this] { check_recovered(); }});
  }

  TestSession session_;
  std::shared_ptr<Membership> member_ = session_.join();
  std::shared_ptr<Membership> other_member_ = session_.join();
  Queue queue_{member_, kStepOptions};
  Queue other_{other_member_, queue_.handle()};
  QueueProbe probe_{member_->open(queue_.handle())};
  std::uint64_t free_bytes_ = probe_.free_bytes();
  std::optional<std::set<MessageKey>> owed_;
  std::uint64_t last_number_ = 0;
};

TEST_F(QueueSingleStep, killed_in_put_of_a_small_message) {
  EXPECT_GT(kill_everywhere("put_small", [] {}), 50U);
}
TEST_F(QueueSingleStep, killed_in_put_of_a_message_of_two_lines) {
  EXPECT_GT(kill_everywhere("put_two_lines", [] {}), 50U);
}
TEST_F(QueueSingleStep, killed_in_put_of_an_inlined_message) {
  EXPECT_GT(kill_everywhere("put_inlined", [] {}), 50U);
}
TEST_F(QueueSingleStep, killed_in_put_of_a_block) {
  EXPECT_GT(kill_everywhere("put_block", [] {}), 200U);
}
TEST_F(QueueSingleStep, killed_in_loan_and_publish) {
  EXPECT_GT(kill_everywhere("loan_and_publish", [] {}), 200U);
}
TEST_F(QueueSingleStep, killed_in_loan_that_is_dropped) {
  EXPECT_GT(kill_everywhere("loan_and_drop", [] {}), 200U);
}

TEST_F(QueueSingleStep, killed_in_put_to_a_ring_that_has_been_round) {
  // The slots are at different laps, and one is occupied.
  EXPECT_GT(kill_everywhere("put_small", [this] { put(kSmall); }), 50U);
}

TEST_F(QueueSingleStep, killed_in_get_of_a_small_message) {
  EXPECT_GT(kill_everywhere("get_message", [this] { put(kSmall); }), 50U);
}
TEST_F(QueueSingleStep, killed_in_get_of_a_message_of_two_lines) {
  EXPECT_GT(kill_everywhere("get_message", [this] { put(kTwoLines); }), 50U);
}
TEST_F(QueueSingleStep, killed_in_get_of_an_inlined_message) {
  EXPECT_GT(kill_everywhere("get_message", [this] { put(kInlined); }), 50U);
}
TEST_F(QueueSingleStep, killed_in_get_of_a_block) {
  EXPECT_GT(kill_everywhere("get_message", [this] { put(kBlock); }), 200U);
}
TEST_F(QueueSingleStep, killed_in_get_with_others_behind) {
  EXPECT_GT(kill_everywhere("get_message", [this] { put(kSmall), put(kBlock), put(kInlined); }), 50U);
}

TEST_F(QueueSingleStep, killed_in_receive_of_a_small_message) {
  EXPECT_GT(kill_everywhere("receive_message", [this] { put(kSmall); }), 50U);
}
TEST_F(QueueSingleStep, killed_in_receive_of_a_message_of_two_lines) {
  EXPECT_GT(kill_everywhere("receive_message", [this] { put(kTwoLines); }), 50U);
}
TEST_F(QueueSingleStep, killed_in_receive_of_an_inlined_message) {
  EXPECT_GT(kill_everywhere("receive_message", [this] { put(kInlined); }), 50U);
}
TEST_F(QueueSingleStep, killed_in_receive_of_a_block) {
  EXPECT_GT(kill_everywhere("receive_message", [this] { put(kBlock); }), 50U);
}
TEST_F(QueueSingleStep, killed_in_receive_of_what_was_given_back) {
  EXPECT_GT(kill_everywhere("receive_message",
                            [this] {
                              put(kBlock);
                              Delivery delivery;
                              ASSERT_EQ(queue_.receive(delivery), GetResult::got);
                            }),
            50U);
}
TEST_F(QueueSingleStep, killed_in_done_of_a_small_message) {
  EXPECT_GT(kill_everywhere("finish_message", [this] { put(kSmall); }), 10U);
}
TEST_F(QueueSingleStep, killed_in_done_of_a_block) {
  EXPECT_GT(kill_everywhere("finish_message", [this] { put(kBlock); }), 100U);
}
TEST_F(QueueSingleStep, killed_in_giving_a_small_message_back) {
  EXPECT_GT(kill_everywhere("give_message_back", [this] { put(kSmall); }), 10U);
}
TEST_F(QueueSingleStep, killed_in_giving_a_block_back) {
  EXPECT_GT(kill_everywhere("give_message_back", [this] { put(kBlock); }), 10U);
}

TEST_F(QueueSingleStep, killed_before_during_and_after_sleeping_for_a_message) {
  SingleStepper stepper(session_, "get_message", {queue_.handle()});
  stepper.on_sleep([this] { put(kSmall); });
  const auto kills = kill_at_every_instruction(stepper, {.prepare = [] {},
                                                         .check_dead = [this] { owed_ = probe_.owed(); },
                                                         .check_recovered = [this] { check_recovered(); }});
  EXPECT_GT(kills, 100U);
  EXPECT_GT(last_number_, kills / 10) << "it slept too rarely";
}

TEST_F(QueueSingleStep, killed_before_during_and_after_sleeping_for_room) {
  SingleStepper stepper(session_, "put_small", {queue_.handle()});
  const auto fill = [this] {
    for (std::uint64_t i = 0; i < kStepOptions.capacity; ++i) put(kSmall);
  };
  stepper.on_sleep([this] {
    Message message;
    ASSERT_EQ(queue_.try_get(message), GetResult::got);
  });
  EXPECT_GT(kill_at_every_instruction(stepper, {.prepare = fill,
                                                .check_dead = [this] { owed_ = probe_.owed(); },
                                                .check_recovered = [this] { check_recovered(); }}),
            100U);
}

}  // namespace
}  // namespace drover::test
