// Memory of other libraries that is imported by reference, and opened by a handle: how long handles stay open, and
// how long the memory is held.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/send.hpp"
#include "session/client/session_helpers.hpp"
#include "support/test_session.hpp"
#include "tensor/exchange/foreign_support.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kOpenCount = 1000;

class OpenImports : public PlaceTest {
 protected:
  [[nodiscard]] Tensor sent(const DlpackArray& array) {
    EXPECT_EQ(put(queue_, import_tensor(*here_, array, kByReference).tensor), PutResult::put);
    Tensor tensor;
    EXPECT_EQ(get(there_queue_, *there_, tensor, Deadline::after(std::chrono::seconds(10))), GetResult::got);
    return tensor;
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

TEST_P(OpenImports, a_handle_is_closed_with_its_last_tensor) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  Tensor got = sent(numbers.array());
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(open_in(*there_), 1U);
  EXPECT_EQ(sum(got), numbers.sum());
  here_->trim();
  EXPECT_EQ(numbers.kept(), 1) << "memory that a peer has open must not be freed";
  got = Tensor();
  EXPECT_EQ(open_in(*there_), 0U);
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

TEST_P(OpenImports, a_tensor_sent_repeatedly_is_held_once) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const auto first = TensorLayout::contiguous(DType::int32, {10});
  const Tensor held = sent(numbers.array(first));
  EXPECT_EQ(numbers.kept(), 1);
  for (int i = 0; i < 100; ++i) static_cast<void>(sent(numbers.array(first)));
  EXPECT_EQ(numbers.kept(), 1);
  static_cast<void>(sent(numbers.array()));
  EXPECT_EQ(numbers.kept(), 2) << "other bytes are held separately";
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

TEST_P(OpenImports, memory_released_while_in_use_is_closed_later_without_calls) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  Gate gate(place());
  gate.hold(sent(numbers.array()));
  here_->trim();
  EXPECT_EQ(numbers.kept(), 1) << "a stream still uses it";
  gate.open();
  EXPECT_TRUE(eventually([&] {
    here_->trim();
    return numbers.kept() == 0;
  })) << "without calls of the receiver";
}

TEST_P(OpenImports, a_memory_that_ends_gives_its_imports_back_at_once) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  const Tensor got = sent(numbers.array());
  here_.reset();
  EXPECT_EQ(numbers.kept(), 0) << "it waits for no peer";
}

TEST_P(OpenImports, an_exiting_process_closes_its_handles) {
  ForeignNumbers numbers(place(), "allocated", kOpenCount);
  std::optional<Tensor> got = sent(numbers.array());
  got.reset();
  there_.reset();
  here_->trim();
  EXPECT_EQ(numbers.kept(), 0);
}

DROVER_INSTANTIATE_ON_DEVICES(OpenImports);

}  // namespace
}  // namespace drover::test
