// Memory of other libraries that was opened by a handle: how long it stays open, and what its maker keeps meanwhile.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/tensor/foreign.hpp"
#include "drover/tensor/send.hpp"
#include "session/client/session_helpers.hpp"
#include "support/captured_log.hpp"
#include "support/test_session.hpp"
#include "tensor/exchange/foreign_support.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kOpenCount = 1000;
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
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
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
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  EXPECT_TRUE(eventually([&] { return open_in(*there_) == 0; }));
}

TEST_P(ForeignOpen, what_is_in_use_is_not_closed) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const Tensor got = sent(numbers.array());
  static_cast<void>(sent(numbers.array()));
  std::this_thread::sleep_for(kLong);
  EXPECT_EQ(open_in(*there_), 1U);
  EXPECT_EQ(sum(got), numbers.sum());
}

TEST_P(ForeignOpen, its_maker_keeps_it_until_it_is_closed) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  here_->trim();
  EXPECT_EQ(numbers.kept(), 1) << "memory that is open elsewhere must not be freed";
  there_->trim();
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(ForeignOpen, its_maker_may_collect_it_then) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  here_->collect();
  static_cast<void>(sent(numbers.array()));
  EXPECT_TRUE(eventually([&] {
    here_->collect();
    return numbers.kept() == 0;
  }));
}

TEST_P(ForeignOpen, where_nothing_is_kept_it_is_closed_at_once) {
  there_.emplace(receiver_, MemoryOptions{.idle_bytes = 0});
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
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
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const auto first = TensorLayout::contiguous(DType::int32, {10});
  const Tensor held = sent(numbers.array(first));
  EXPECT_EQ(numbers.kept(), 1);
  for (int i = 0; i < 100; ++i) static_cast<void>(sent(numbers.array(first)));
  EXPECT_EQ(numbers.kept(), 1);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(numbers.kept(), 1) << "who keeps all keeps a part of it";
  static_cast<void>(sent(numbers.array(first, 400)));
  EXPECT_EQ(numbers.kept(), 2);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(numbers.kept(), 1);
}

// A library may take bytes from an array that is kept, as torch does if a storage is resized, and give them to
// another.
TEST_P(ForeignOpen, the_newest_keeper_is_the_one_that_counts) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  auto one = std::make_shared<int>();
  auto two = std::make_shared<int>();
  const auto kept_by = [&](const std::shared_ptr<int>& keeper, std::int64_t count) {
    DlpackArray array = numbers.array(TensorLayout::contiguous(DType::int32, {count}));
    array.keeper = keeper;
    return array;
  };
  const Tensor first = sent(kept_by(one, 10));
  const Tensor second = sent(kept_by(two, 10));
  EXPECT_EQ(one.use_count(), 1);
  EXPECT_EQ(two.use_count(), 2);
  const Tensor smaller = sent(kept_by(one, 5));
  EXPECT_EQ(one.use_count(), 2) << "what lies inside of older bytes is kept for itself";
  EXPECT_EQ(two.use_count(), 2);
  const Tensor without = sent(kept_by(nullptr, 10));
  EXPECT_EQ(two.use_count(), 2) << "who gives no keeper replaces none";
}

TEST_P(ForeignOpen, parts_beside_each_other_have_a_keeper_each) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const auto ten = TensorLayout::contiguous(DType::int32, {10});
  const Tensor held = sent(numbers.array(ten, 400));
  static_cast<void>(sent(numbers.array(ten, 440)));
  static_cast<void>(sent(numbers.array(ten, 420)));
  EXPECT_EQ(numbers.kept(), 3) << "the last reaches from one into the other";
  EXPECT_EQ(sum(held), 1045.0);
}

TEST_P(ForeignOpen, a_maker_that_ends_waits_for_those_who_are_about_to_close_it) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  const CapturedLog log(LogLevel::warn);
  here_.reset();
  EXPECT_FALSE(log.contains("while other processes use it"));
  EXPECT_EQ(open_in(*there_), 0U);
  EXPECT_EQ(numbers.kept(), 0);
}

// They want locks of their libraries.
TEST_P(ForeignOpen, keepers_are_not_let_go_behind_the_back_of_a_program) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  Gate gate(place());
  gate.hold(import_tensor(*here_, numbers.array()).tensor);
  gate.open();
  static_cast<void>(gate.stream().synchronize(Deadline::never()));
  std::this_thread::sleep_for(kLong);
  EXPECT_EQ(numbers.kept(), 1);
  here_->collect();
  EXPECT_EQ(numbers.kept(), 1) << "whether the work is done is a question to a device";
  EXPECT_EQ(here_->claimed(place()), 0U);
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(ForeignOpen, what_was_in_use_when_it_was_let_go_is_closed_after_that_by_itself) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  Gate gate(place());
  gate.hold(sent(numbers.array()));
  std::this_thread::sleep_for(kLong);
  here_->collect();
  EXPECT_EQ(numbers.kept(), 1) << "a stream still uses it";
  gate.open();
  EXPECT_TRUE(eventually([&] {
    here_->collect();
    return numbers.kept() == 0;
  })) << "the receiver does nothing, and was not asked";
}

TEST_P(ForeignOpen, a_maker_that_ends_waits_for_those_whose_work_has_just_ended) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  {
    Gate gate(place());
    gate.hold(sent(numbers.array()));
    std::this_thread::sleep_for(3 * kLong);  // so that it was looked after in vain, often
  }
  const CapturedLog log(LogLevel::warn);
  here_.reset();
  EXPECT_FALSE(log.contains("while other processes use it"));
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(ForeignOpen, those_who_have_each_others_do_not_wait_for_each_other) {
  keep_long();
  here_.emplace(sender_, MemoryOptions{.idle_bytes = kGiB, .idle_time = std::chrono::hours(1)});
  ForeignNumbers mine(place(), "allocated", kOpenCount);
  ForeignNumbers theirs(place(), "allocated", kOpenCount);
  static_cast<void>(sent(mine.array()));
  ASSERT_EQ(put(there_queue_, import_tensor(*there_, theirs.array()).tensor), PutResult::put);
  Tensor got;
  ASSERT_EQ(get(queue_, *here_, got, Deadline::after(std::chrono::seconds(10))), GetResult::got);
  got = Tensor();
  const CapturedLog log(LogLevel::warn);
  std::thread other([this] { there_.reset(); });
  here_.reset();
  other.join();
  EXPECT_FALSE(log.contains("while other processes use it"));
}

TEST_P(ForeignOpen, a_process_that_ends_closes_it) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  there_.reset();
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

DROVER_INSTANTIATE_ON_DEVICES(ForeignOpen);

}  // namespace
}  // namespace drover::test
