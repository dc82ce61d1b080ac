// Pending tasks: the order in which workers get them.
#include "pool/run/pending.hpp"

#include <array>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace drover::pool {
namespace {

using Numbers = std::vector<std::uint64_t>;

// A call that ends when the test sets it.
class OneCall final : public detail::TaskCall {
 public:
  using TaskCall::TaskCall;
  void deliver(Decoder& /*from*/) override { over_ = true; }
  void refuse(std::exception_ptr /*error*/) override { over_ = true; }
  [[nodiscard]] bool is_over() const noexcept override { return over_; }
  void end() { over_ = true; }

 private:
  bool over_ = false;
};

class Pending : public ::testing::Test {
 protected:
  using CallPtr = std::shared_ptr<OneCall>;

  CallPtr make(std::size_t lane = PendingTasks::kAnyWorker, int priority = 0) {
    auto call = std::make_shared<OneCall>(task_, Encoder(), TaskOptions{.priority = priority});
    call->lane = lane;
    call->number = ++last_;
    return call;
  }
  CallPtr push(std::size_t lane = PendingTasks::kAnyWorker, int priority = 0) {
    auto call = make(lane, priority);
    pending_.push(call);
    return call;
  }
  // Takes all tasks of these lanes, in order.
  Numbers take(const std::vector<std::size_t>& lanes) {
    Numbers numbers;
    while (const TaskPtr* const first = pending_.peek(lanes)) {
      const std::uint64_t expected = (*first)->number;
      numbers.push_back(pending_.take()->number);
      EXPECT_EQ(numbers.back(), expected);
    }
    return numbers;
  }

  RegisteredTask task_{.name = "test", .signature = "", .body = {}};
  PendingTasks pending_;
  std::uint64_t last_ = 0;
};

TEST_F(Pending, tasks_keep_their_order) {
  for (int i = 0; i < 3; ++i) push();
  EXPECT_EQ(pending_.size(), 3U);
  EXPECT_EQ(take({0}), (Numbers{1, 2, 3}));
  EXPECT_EQ(pending_.size(), 0U);
  EXPECT_EQ(take({}), Numbers{});
}

TEST_F(Pending, higher_priorities_go_first) {
  push(0, 0);
  push(0, 5);
  push(0, -5);
  push(0, 5);
  EXPECT_EQ(take({0}), (Numbers{2, 4, 1, 3}));
}

TEST_F(Pending, lanes_are_merged_by_priority_and_then_by_age) {
  const std::size_t one = pending_.add_lane();
  const std::size_t two = pending_.add_lane();
  push(one);
  push(two, 1);
  push(0);
  push(one, 1);
  push(two);
  EXPECT_EQ(pending_.size(two), 2U);
  EXPECT_EQ(take({0, one}), (Numbers{4, 1, 3}));
  EXPECT_EQ(take({two, one, 0}), (Numbers{2, 5}));
}

TEST_F(Pending, the_lowest_possible_priority_goes_last) {
  const std::size_t lane = pending_.add_lane();
  push(0, std::numeric_limits<int>::min());
  push(lane, 0);
  push(lane, std::numeric_limits<int>::max());
  EXPECT_EQ(take({0, lane}), (Numbers{3, 2, 1}));
}

TEST_F(Pending, a_requeued_task_keeps_its_position) {
  const auto first = push();
  const auto second = push();
  push();
  EXPECT_EQ(pending_.peek(std::array{PendingTasks::kAnyWorker})->get(), first.get());
  static_cast<void>(pending_.take());
  static_cast<void>(pending_.peek(std::array{PendingTasks::kAnyWorker}));
  static_cast<void>(pending_.take());
  pending_.push_again(second);
  pending_.push_again(first);
  const auto last = make();
  pending_.push_again(last);
  EXPECT_EQ(take({0}), (Numbers{1, 2, 3, 4}));
}

TEST_F(Pending, tasks_that_are_over_are_skipped) {
  const std::vector<CallPtr> calls{push(0, 9), push(), push(), push()};
  calls[0]->end();
  calls[2]->end();
  EXPECT_EQ(take({0}), (Numbers{2, 4}));
  EXPECT_EQ(pending_.size(), 0U);
  push()->end();
  EXPECT_EQ(pending_.peek(std::array{PendingTasks::kAnyWorker}), nullptr);
  EXPECT_EQ(pending_.size(), 0U);
}

TEST_F(Pending, a_task_can_be_erased) {
  const auto one = push(0, 3);
  const auto two = push();
  EXPECT_TRUE(pending_.erase(*one));
  EXPECT_FALSE(pending_.erase(*one));
  EXPECT_FALSE(pending_.erase(*make(0, 7)));
  EXPECT_EQ(pending_.size(), 1U);
  EXPECT_EQ(pending_.size(PendingTasks::kAnyWorker), 1U);
  EXPECT_EQ(take({0}), (Numbers{2}));
}

TEST_F(Pending, all_tasks_can_be_taken) {
  const std::size_t lane = pending_.add_lane();
  push(0, 1);
  push(lane);
  push();
  std::set<std::uint64_t> numbers;
  for (const auto& task : pending_.take_all()) numbers.insert(task->number);
  EXPECT_EQ(numbers, (std::set<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(pending_.size() + pending_.size(0) + pending_.size(lane), 0U);
  EXPECT_TRUE(pending_.take_all().empty());
  push(lane);
  EXPECT_EQ(take({lane}), (Numbers{4}));
}

}  // namespace
}  // namespace drover::pool
