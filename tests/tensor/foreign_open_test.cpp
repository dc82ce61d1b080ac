// Memory of other libraries that was opened by a handle: how long it stays open, and what its maker keeps meanwhile.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/tensor/foreign.hpp"
#include "drover/tensor/send.hpp"
#include "session/session_helpers.hpp"
#include "support/captured_log.hpp"
#include "support/test_session.hpp"
#include "tensor/foreign_support.hpp"
#include "tensor/gate.hpp"
#include "tensor/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kCount = 1000;
constexpr std::chrono::milliseconds kLong{200};  // several times as long as it stays open

class ForeignOpen : public PlaceTest {
 protected:
  [[nodiscard]] Tensor sent(const DlpackArray& array) {
    EXPECT_EQ(put(queue_, import_tensor(*here_, array).tensor), PutResult::put);
    Tensor tensor;
    EXPECT_EQ(get(there_queue_, *there_, tensor, Deadline::after(std::chrono::seconds(10))), GetResult::got);
    return tensor;
  }
  // So that what is open is so for many seconds after its last use.
  void keep_long(std::uint64_t bytes = kGiB) {
    there_.emplace(receiver_, MemoryOptions{.idle_bytes = bytes, .idle_time = std::chrono::hours(1)});
  }
  // How many slabs a process has open on the device; to ask for that closes nothing.
  [[nodiscard]] static std::size_t open_in(const Memory& memory) {
    const auto slabs = memory.usage();
    return static_cast<std::size_t>(std::ranges::count(slabs, place(), &SlabUsage::place));
  }

  TestSession session_;
  std::shared_ptr<Membership> sender_ = session_.join();
  std::shared_ptr<Membership> receiver_ = session_.join();
  std::optional<Memory> here_{sender_};
  std::optional<Memory> there_{receiver_};
  Queue queue_{sender_};
  Queue there_queue_{receiver_, queue_.handle()};
};

TEST_P(ForeignOpen, it_stays_open_for_more_to_come) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kCount);
  const auto handle = [&] { return there_->usage().at(0).handle; };
  static_cast<void>(sent(numbers.array()));
  ASSERT_EQ(open_in(*there_), 1U);
  const ObjectHandle first = handle();
  for (int i = 0; i < 10; ++i) static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(handle(), first) << "the same slab, which was not made and opened anew";
  there_->trim();
  EXPECT_EQ(open_in(*there_), 0U);
}

TEST_P(ForeignOpen, it_is_closed_by_itself) {
  ForeignNumbers numbers(place(), "allocated", kCount);
  static_cast<void>(sent(numbers.array()));
  EXPECT_TRUE(eventually([&] { return open_in(*there_) == 0; }));
}

TEST_P(ForeignOpen, what_is_in_use_is_not_closed) {
  ForeignNumbers numbers(place(), "allocated", kCount);
  const Tensor got = sent(numbers.array());
  static_cast<void>(sent(numbers.array()));
  std::this_thread::sleep_for(kLong);
  EXPECT_EQ(open_in(*there_), 1U);
  EXPECT_EQ(sum(got), numbers.sum());
}

TEST_P(ForeignOpen, its_maker_keeps_it_until_it_is_closed) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kCount);
  static_cast<void>(sent(numbers.array()));
  here_->trim();
  EXPECT_EQ(numbers.kept(), 1) << "memory that is open elsewhere must not be freed";
  there_->trim();
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(ForeignOpen, its_maker_may_collect_it_then) {
  ForeignNumbers numbers(place(), "allocated", kCount);
  here_->collect();
  static_cast<void>(sent(numbers.array()));
  EXPECT_TRUE(eventually([&] {
    here_->collect();
    return numbers.kept() == 0;
  }));
}

TEST_P(ForeignOpen, where_nothing_is_kept_it_is_closed_at_once) {
  there_.emplace(receiver_, MemoryOptions{.idle_bytes = 0});
  ForeignNumbers numbers(place(), "allocated", kCount);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(open_in(*there_), 0U);
}

TEST_P(ForeignOpen, more_than_may_be_kept_is_closed_at_once) {
  keep_long(3 * kMiB);
  const auto count = static_cast<std::int64_t>(kMiB / 2);  // of 4 bytes
  ForeignNumbers one(place(), "allocated", count);
  ForeignNumbers two(place(), "allocated", count);
  ForeignNumbers large(place(), "allocated", 2 * count);
  static_cast<void>(sent(one.array()));
  EXPECT_EQ(open_in(*there_), 1U);
  static_cast<void>(sent(large.array()));
  EXPECT_EQ(open_in(*there_), 1U) << "too large itself";
  static_cast<void>(sent(two.array()));
  EXPECT_EQ(open_in(*there_), 1U) << "the one that was used last";
  here_->trim();
  EXPECT_EQ(one.kept() + large.kept(), 0);
  EXPECT_EQ(two.kept(), 1);
}

TEST_P(ForeignOpen, a_tensor_that_is_sent_again_and_again_has_one_keeper) {
  ForeignNumbers numbers(place(), "allocated", kCount);
  const auto first = TensorLayout::contiguous(DType::int32, {10});
  const Tensor held = sent(numbers.array(first));
  EXPECT_EQ(numbers.kept(), 1);
  for (int i = 0; i < 100; ++i) static_cast<void>(sent(numbers.array(first)));
  EXPECT_EQ(numbers.kept(), 1);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(numbers.kept(), 1) << "who keeps all keeps a part that begins there";
  static_cast<void>(sent(numbers.array(first, 400)));
  EXPECT_EQ(numbers.kept(), 1) << "nor does a part in the middle need its own";
}

TEST_P(ForeignOpen, parts_beside_each_other_have_a_keeper_each) {
  ForeignNumbers numbers(place(), "allocated", kCount);
  const auto ten = TensorLayout::contiguous(DType::int32, {10});
  const Tensor held = sent(numbers.array(ten, 400));
  static_cast<void>(sent(numbers.array(ten, 440)));
  static_cast<void>(sent(numbers.array(ten, 420)));
  EXPECT_EQ(numbers.kept(), 3) << "the last reaches from one into the other";
  EXPECT_EQ(sum(held), 1045.0);
}

TEST_P(ForeignOpen, a_maker_that_ends_waits_for_those_who_are_about_to_close_it) {
  ForeignNumbers numbers(place(), "allocated", kCount);
  static_cast<void>(sent(numbers.array()));
  const CapturedLog log(LogLevel::warn);
  here_.reset();
  EXPECT_FALSE(log.contains("while other processes use it"));
  EXPECT_EQ(open_in(*there_), 0U);
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(ForeignOpen, what_work_still_used_is_given_back_by_itself_when_that_is_done) {
  ForeignNumbers numbers(place(), "allocated", kCount);
  Gate gate(place());
  gate.hold(sent(numbers.array()));
  std::this_thread::sleep_for(kLong);
  EXPECT_GT(there_->claimed(place()), 0U);
  gate.open();
  EXPECT_TRUE(eventually([&] { return there_->claimed(place()) == 0; }));
  EXPECT_TRUE(eventually([&] { return open_in(*there_) == 0; }));
}

TEST_P(ForeignOpen, a_process_that_ends_closes_it) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kCount);
  static_cast<void>(sent(numbers.array()));
  there_.reset();
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

DROVER_INSTANTIATE_ON_DEVICES(ForeignOpen);

}  // namespace
}  // namespace drover::test
