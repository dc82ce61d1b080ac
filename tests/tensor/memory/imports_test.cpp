// Memory of other libraries, opened by a handle: how long handles stay open, and how long the memory is held.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/tensor/dlpack.hpp"
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
constexpr std::chrono::milliseconds kLong{200};  // several times as long as handles stay open

class OpenImports : public PlaceTest {
 protected:
  [[nodiscard]] Tensor sent(const DlpackArray& array) {
    EXPECT_EQ(put(queue_, import_tensor(*here_, array).tensor), PutResult::put);
    Tensor tensor;
    EXPECT_EQ(get(there_queue_, *there_, tensor, Deadline::after(std::chrono::seconds(10))), GetResult::got);
    return tensor;
  }
  // Keeps handles open long after their last use.
  void keep_long(std::uint64_t bytes = kGiB) {
    there_.emplace(receiver_, MemoryOptions{.idle_bytes = bytes, .idle_time = std::chrono::hours(1)});
  }
  // How many slabs a process has open on the device. Closes none.
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

TEST_P(OpenImports, a_handle_stays_open_for_later_tensors) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const auto handle = [&] { return there_->usage().at(0).handle; };
  static_cast<void>(sent(numbers.array()));
  ASSERT_EQ(open_in(*there_), 1U);
  const ObjectHandle first = handle();
  for (int i = 0; i < 10; ++i) static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(handle(), first) << "the same slab, not made and opened again";
  there_->trim();
  EXPECT_EQ(open_in(*there_), 0U);
}

TEST_P(OpenImports, an_idle_handle_is_closed_without_calls) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  EXPECT_TRUE(eventually([&] { return open_in(*there_) == 0; }));
}

TEST_P(OpenImports, a_handle_in_use_is_not_closed) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const Tensor got = sent(numbers.array());
  static_cast<void>(sent(numbers.array()));
  std::this_thread::sleep_for(kLong);
  EXPECT_EQ(open_in(*there_), 1U);
  EXPECT_EQ(sum(got), numbers.sum());
}

TEST_P(OpenImports, the_owner_holds_the_memory_until_it_is_closed) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  here_->trim();
  EXPECT_EQ(numbers.kept(), 1) << "memory that a peer has open must not be freed";
  there_->trim();
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(OpenImports, the_owner_can_collect_it_after_it_is_closed) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  here_->collect();
  static_cast<void>(sent(numbers.array()));
  EXPECT_TRUE(eventually([&] {
    here_->collect();
    return numbers.kept() == 0;
  }));
}

TEST_P(OpenImports, without_idle_memory_a_handle_is_closed_at_once) {
  there_.emplace(receiver_, MemoryOptions{.idle_bytes = 0});
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(open_in(*there_), 0U);
}

TEST_P(OpenImports, handles_beyond_the_limit_are_closed_at_once) {
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
  EXPECT_EQ(open_in(*there_), 1U) << "the one used last";
  here_->trim();
  EXPECT_EQ(one.kept() + large.kept(), 0);
  EXPECT_EQ(two.kept(), 1);
}

TEST_P(OpenImports, a_tensor_sent_repeatedly_is_held_once) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const auto first = TensorLayout::contiguous(DType::int32, {10});
  const Tensor held = sent(numbers.array(first));
  EXPECT_EQ(numbers.kept(), 1);
  for (int i = 0; i < 100; ++i) static_cast<void>(sent(numbers.array(first)));
  EXPECT_EQ(numbers.kept(), 1);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(numbers.kept(), 1) << "the whole includes its parts";
  static_cast<void>(sent(numbers.array(first, 400)));
  EXPECT_EQ(numbers.kept(), 2);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(numbers.kept(), 1);
}

// A library may move bytes from a held array to another one, as torch does when a storage is resized.
TEST_P(OpenImports, a_newer_keep_alive_replaces_older_ones_of_its_bytes) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  auto one = std::make_shared<int>();
  auto two = std::make_shared<int>();
  const auto kept_by = [&](const std::shared_ptr<int>& keep_alive, std::int64_t count) {
    DlpackArray array = numbers.array(TensorLayout::contiguous(DType::int32, {count}));
    array.keep_alive = keep_alive;
    return array;
  };
  const Tensor first = sent(kept_by(one, 10));
  const Tensor second = sent(kept_by(two, 10));
  EXPECT_EQ(one.use_count(), 1);
  EXPECT_EQ(two.use_count(), 2);
  const Tensor smaller = sent(kept_by(one, 5));
  EXPECT_EQ(one.use_count(), 2) << "a part of older bytes is held separately";
  EXPECT_EQ(two.use_count(), 2);
  const Tensor without = sent(kept_by(nullptr, 10));
  EXPECT_EQ(two.use_count(), 2) << "an import without keep_alive replaces none";
}

TEST_P(OpenImports, disjoint_parts_are_held_separately) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const auto ten = TensorLayout::contiguous(DType::int32, {10});
  const Tensor held = sent(numbers.array(ten, 400));
  static_cast<void>(sent(numbers.array(ten, 440)));
  static_cast<void>(sent(numbers.array(ten, 420)));
  EXPECT_EQ(numbers.kept(), 3) << "the last overlaps both";
  EXPECT_EQ(sum(held), 1045.0);
}

TEST_P(OpenImports, an_exiting_owner_waits_for_peers_that_close_handles) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  const CapturedLog log(LogLevel::warn);
  here_.reset();
  EXPECT_FALSE(log.contains("while other processes still use it"));
  EXPECT_EQ(open_in(*there_), 0U);
  EXPECT_EQ(numbers.kept(), 0);
}

// Its deleter may want locks of its library.
TEST_P(OpenImports, pollers_never_release_keep_alive) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  Gate gate(place());
  gate.hold(import_tensor(*here_, numbers.array()).tensor);
  gate.open();
  static_cast<void>(gate.stream().synchronize(Deadline::never()));
  std::this_thread::sleep_for(kLong);
  EXPECT_EQ(numbers.kept(), 1);
  here_->collect();
  EXPECT_EQ(numbers.kept(), 1) << "collect asks no device whether the work is done";
  EXPECT_EQ(here_->claimed(place()), 0U);
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(OpenImports, memory_released_while_in_use_is_closed_later_without_calls) {
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
  })) << "without calls of the receiver";
}

TEST_P(OpenImports, an_exiting_owner_waits_for_peers_whose_work_just_ended) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  {
    Gate gate(place());
    gate.hold(sent(numbers.array()));
    std::this_thread::sleep_for(3 * kLong);  // polled many times in vain
  }
  const CapturedLog log(LogLevel::warn);
  here_.reset();
  EXPECT_FALSE(log.contains("while other processes still use it"));
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(OpenImports, peers_with_each_others_memory_do_not_deadlock) {
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
  EXPECT_FALSE(log.contains("while other processes still use it"));
}

TEST_P(OpenImports, an_exiting_process_closes_its_handles) {
  keep_long();
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  static_cast<void>(sent(numbers.array()));
  there_.reset();
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

DROVER_INSTANTIATE_ON_DEVICES(OpenImports);

}  // namespace
}  // namespace drover::test
