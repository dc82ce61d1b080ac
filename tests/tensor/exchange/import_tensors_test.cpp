// Many arrays of other libraries in one message: copied together, and values from then on.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/send.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"
#include "tensor/exchange/foreign_support.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kNumbers = 100'000;

// An array in host memory, which the test keeps alive.
DlpackArray on_host(std::span<std::int32_t> numbers, const TensorLayout& layout) {
  return {.layout = layout,
          .place = Place::cpu(),
          .base = {reinterpret_cast<std::uint64_t>(numbers.data())},
          .keep_alive = nullptr};
}
DlpackArray on_host(std::span<std::int32_t> numbers) {
  return on_host(numbers, TensorLayout::contiguous(DType::int32, {static_cast<std::int64_t>(numbers.size())}));
}

class ImportedArrays : public PlaceTest {
 protected:
  // What the receiver has of arrays that are sent in one message.
  [[nodiscard]] std::vector<Tensor> sent(const std::vector<ImportRequest>& requests) {
    send(requests);
    return received();
  }
  void send(const std::vector<ImportRequest>& requests) {
    std::vector<Tensor> tensors;
    for (auto& imported : import_tensors(*here_, requests)) tensors.push_back(std::move(imported.tensor));
    PackedTensors packed = pack_all(tensors);
    leases_ = packed.leases.size();
    ASSERT_EQ(queue_.put(packed.record, packed.leases), PutResult::put);
  }
  [[nodiscard]] std::vector<Tensor> received() {
    Message message;
    EXPECT_EQ(there_queue_.get(message, Deadline::after(std::chrono::seconds(30))), GetResult::got);
    auto leases = message.take_leases();
    return unpack_all(there_, message.bytes(), leases);
  }
  // Blocks in use by any process.
  [[nodiscard]] std::uint64_t blocks() const {
    std::uint64_t count = 0;
    for (const auto& slab : here_->usage()) count += slab.blocks;
    return count;
  }

  TestSession session_;
  std::shared_ptr<Membership> sender_ = session_.join();
  std::shared_ptr<Membership> receiver_ = session_.join();
  std::optional<Memory> here_{sender_};
  Memory there_{receiver_};
  Queue queue_{sender_};
  Queue there_queue_{receiver_, queue_.handle()};
  std::size_t leases_ = 0;  // of the latest message
};

TEST_P(ImportedArrays, of_every_kind_and_number_arrive_with_their_elements) {
  for (const std::size_t count : {1U, 60U, 1000U}) {
    SCOPED_TRACE(count);
    ForeignNumbers allocated(place(), "allocated", kNumbers);
    ForeignNumbers mapped(place(), "mapped", kNumbers);
    std::vector<std::int32_t> host(1000);
    std::iota(host.begin(), host.end(), 0);
    std::vector<ImportRequest> requests;
    std::vector<double> sums;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t begin = i * 90;
      const auto tens = TensorLayout::contiguous(DType::int32, {10});
      const auto strided = TensorLayout::strided(DType::int32, {3, 4}, {20, 5});  // first + 20 i + 5 j
      const auto empty = TensorLayout::contiguous(DType::float64, {0, 3});
      switch (i % 5) {
        case 0: requests.push_back({allocated.array(tens, 4 * begin), {}}); break;
        case 1: requests.push_back({mapped.array(strided, 4 * begin), {}}); break;
        case 2: requests.push_back({on_host(host, tens), {}}); break;
        case 3: requests.push_back({allocated.array(empty, 4 * begin), {}}); break;
        default: requests.push_back({allocated.array(strided, 4 * begin), {}}); break;
      }
      const auto first = static_cast<double>(begin);
      sums.push_back(std::array{10 * first + 45, 12 * first + 330, 45.0, 0.0, 12 * first + 330}.at(i % 5));
    }
    {
      const auto got = sent(requests);
      ASSERT_EQ(got.size(), count);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(std::ranges::equal(got[i].shape(), requests[i].array.layout.shape())) << i;
        EXPECT_EQ(got[i].place(), requests[i].array.place) << i;
        EXPECT_EQ(sum(got[i]), sums[i]) << i;
      }
    }
    requests.clear();
    EXPECT_TRUE(eventually([&] { return allocated.kept() + mapped.kept() == 0 && blocks() == 0; }));
  }
}

TEST_P(ImportedArrays, of_several_devices_travel_in_one_message) {
  const Place other = place().backend == BackendKind::host ? Place::parse("host:1") : Place::parse("host:0");
  ForeignNumbers here(place(), "allocated", kNumbers);
  ForeignNumbers there(other, "mapped", kNumbers);
  std::vector<std::int32_t> host(100, 3);
  const auto got = sent({{there.array(), {}}, {on_host(host), {}}, {here.array(), {}}, {there.array(), {}}});
  ASSERT_EQ(got.size(), 4U);
  EXPECT_EQ(got[0].place(), other);
  EXPECT_EQ(got[1].place(), Place::cpu());
  EXPECT_EQ(got[2].place(), place());
  EXPECT_EQ(sum(got[0]), there.sum());
  EXPECT_EQ(sum(got[1]), 300.0);
  EXPECT_EQ(sum(got[2]), here.sum());
  EXPECT_EQ(sum(got[3]), there.sum());
}

TEST_P(ImportedArrays, keep_the_elements_of_the_moment_when_they_were_sent) {
  ForeignNumbers numbers(place(), "allocated", kNumbers);
  std::vector<std::int32_t> host(100, 3);
  Gate gate(place());
  gate.stream().fill(numbers.ptr(), 1, kNumbers * sizeof(std::int32_t));
  send({{numbers.array(), {.stream = gate.stream().native()}}, {on_host(host), {}}});
  gate.stream().fill(numbers.ptr(), 2, kNumbers * sizeof(std::int32_t));
  std::ranges::fill(host, 4);
  const auto got = received();
  EXPECT_FALSE(got[0].is_ready()) << "nobody waited for the stream";
  EXPECT_EQ(sum(got[1]), 300.0);
  gate.open();
  EXPECT_EQ(sum(got[0]), double{0x01010101} * kNumbers);
}

TEST_P(ImportedArrays, of_two_streams_are_copied_after_both) {
  ForeignNumbers one(place(), "allocated", kNumbers);
  ForeignNumbers two(place(), "allocated", kNumbers);
  Gate first(place());
  Gate second(place());
  first.stream().fill(one.ptr(), 1, kNumbers * sizeof(std::int32_t));
  second.stream().fill(two.ptr(), 2, kNumbers * sizeof(std::int32_t));
  const auto got =
      sent({{one.array(), {.stream = first.stream().native()}}, {two.array(), {.stream = second.stream().native()}}});
  for (const Tensor& tensor : got) EXPECT_FALSE(tensor.is_ready());
  first.open();
  second.open();
  EXPECT_EQ(sum(got[0]), double{0x01010101} * kNumbers);
  EXPECT_EQ(sum(got[1]), double{0x02020202} * kNumbers);
}

TEST_P(ImportedArrays, that_overlap_share_elements_and_others_do_not) {
  ForeignNumbers numbers(place(), "allocated", kNumbers);
  const auto ten = TensorLayout::contiguous(DType::int32, {10});
  const auto got = sent({{numbers.array(ten), {}}, {numbers.array(ten, 20), {}}, {numbers.array(ten, 400), {}}});
  EXPECT_EQ(sum(got[1]), 95.0);
  got[0].fill(1);
  got[0].synchronize();
  EXPECT_EQ(sum(got[1]), 5.0 + 60.0) << "its first half is that of the other";
  EXPECT_EQ(sum(got[2]), 1045.0);
  EXPECT_EQ(numbers.sum(), sum(sent({{numbers.array(), {}}}).front())) << "the source has not changed";
}

TEST_P(ImportedArrays, share_blocks_if_they_are_small) {
  ForeignNumbers numbers(place(), "allocated", kNumbers);
  std::vector<ImportRequest> small;
  for (std::uint64_t i = 0; i < 500; ++i) {
    small.push_back({numbers.array(TensorLayout::contiguous(DType::int32, {10}), 100 * i), {}});
  }
  EXPECT_EQ(sent(small).size(), 500U);
  EXPECT_EQ(leases_, 1U);
  const std::int64_t large = 9 * kMiB / 4;
  ForeignNumbers one(place(), "allocated", large);
  ForeignNumbers two(place(), "allocated", large);
  auto got = sent({{one.array(), {}}, {two.array(), {}}});
  EXPECT_EQ(leases_, 2U);
  got.pop_back();
  EXPECT_EQ(sum(got[0]), one.sum());
  EXPECT_TRUE(eventually([&] { return blocks() == 1; })) << "a receiver that keeps one does not keep the other";
}

TEST_P(ImportedArrays, of_few_elements_far_apart_are_copied_without_what_is_between) {
  ForeignNumbers numbers(place(), "allocated", kNumbers);
  const auto column = TensorLayout::strided(DType::int32, {100}, {1000});
  const auto got = sent({{numbers.array(column), {}}});
  EXPECT_EQ(sum(got[0]), 1000.0 * 4950);
  EXPECT_TRUE(got[0].layout().is_contiguous());
}

TEST(ImportedHostArrays, take_no_memory_for_what_lies_between_their_elements) {
  TestSession session;
  const Memory memory(session.join());
  std::vector<std::int32_t> numbers(kNumbers);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto far = TensorLayout::strided(DType::int32, {9, 11}, {10'000, 900}, 7);
  const auto near = TensorLayout::strided(DType::int32, {20}, {2}, 3);
  const std::vector<ImportRequest> requests = {{on_host(numbers, far), {}},
                                               {on_host(std::span(numbers).last(100), near), {}}};
  const auto imported = import_tensors(memory, requests);
  ASSERT_EQ(imported.size(), 2U);
  EXPECT_EQ(imported[0].tensor.elements<std::int32_t>().size(), 99U);
  EXPECT_EQ(imported[0].tensor.elements<std::int32_t>()[98], 7 + (8 * 10'000) + (10 * 900));
  EXPECT_EQ(imported[1].tensor.contiguous().elements<std::int32_t>()[19], kNumbers - 100 + 3 + 38);
  std::uint64_t bytes = 0;
  for (const auto& slab : memory.usage()) {
    for (const auto& holder : slab.holders) bytes += holder.bytes;
  }
  EXPECT_LT(bytes, 16 * kKiB) << "of 400,000 bytes";
}

TEST(ImportedHostArrays, of_columns_are_copied_apart_unless_they_share_elements) {
  TestSession session;
  const Memory memory(session.join());
  std::vector<std::int32_t> numbers(kNumbers);  // a table of 100 rows
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto columns = [&](std::int64_t first, std::int64_t count) {
    return ImportRequest{on_host(numbers, TensorLayout::strided(DType::int32, {100, count}, {1000, 1}, first)), {}};
  };
  const auto bytes = [&](const std::vector<ImportRequest>& requests) {
    const auto imported = import_tensors(memory, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto& from = requests[i].array.layout;
      const auto got = imported[i].tensor.contiguous();
      EXPECT_EQ(got.elements<std::int32_t>()[0], from.offset());
      EXPECT_EQ(got.elements<std::int32_t>().back(), 99'000 + from.offset() + from.shape()[1] - 1);
    }
    std::uint64_t all = 0;
    for (const auto& slab : memory.usage()) {
      for (const auto& holder : slab.holders) all += holder.bytes;
    }
    return all;
  };
  constexpr std::uint64_t kTable = 390'000;
  EXPECT_LT(bytes({columns(0, 1), columns(1, 1), columns(999, 1), columns(5, 10), columns(15, 3)}), 32 * kKiB);
  EXPECT_GT(bytes({columns(0, 2), columns(1, 1)}), kTable) << "the second is a part of the first";
  EXPECT_GT(bytes({columns(5, 1), columns(5, 1)}), kTable);
  EXPECT_GT(bytes({columns(999, 1), columns(0, 600)}), kTable) << "without wide gaps";
  const auto whole = ImportRequest{on_host(numbers), {}};
  const auto imported = import_tensors(memory, std::vector{columns(3, 2), whole});
  imported[1].tensor.elements<std::int32_t>()[1004] = -4;
  EXPECT_EQ(imported[0].tensor.contiguous().elements<std::int32_t>()[3], -4) << "shared with the whole table";
}

TEST_P(ImportedArrays, are_held_until_the_copy_is_done_and_then_released_without_calls) {
  ForeignNumbers numbers(place(), "allocated", kNumbers);
  Gate gate(place());
  send({{numbers.array(), {.stream = gate.stream().native()}}});
  const Tensor got = received().front();
  EXPECT_EQ(numbers.kept(), 1) << "the library must not reuse the memory before the copy";
  gate.open();
  EXPECT_TRUE(eventually([&] { return numbers.kept() == 0; }));
  EXPECT_EQ(sum(got), numbers.sum());
}

TEST_P(ImportedArrays, in_shared_memory_are_not_copied) {
  ForeignNumbers numbers(place(), "allocated", kNumbers);
  const Tensor tensor = arange(*here_, DType::int32, 0, kNumbers, place());
  const DlpackArray lent = to_dlpack(tensor, 1);
  const auto imported = import_tensors(*here_, std::vector<ImportRequest>{{numbers.array(), {}}, {lent, {}}});
  EXPECT_EQ(imported[0].way, ImportWay::copied);
  EXPECT_EQ(imported[1].way, ImportWay::own);
  EXPECT_EQ(imported[1].tensor.device_ptr(), tensor.device_ptr());
}

TEST_P(ImportedArrays, by_reference_stay_the_same_memory) {
  for (const std::string kind : {"allocated", "mapped"}) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kNumbers);
    const auto got = sent({{numbers.array(), kByReference}, {numbers.array(), {}}});
    got[1].synchronize();
    numbers.set(7, 1007);
    EXPECT_EQ(sum(got[0]), numbers.sum() + 1000);
    EXPECT_EQ(sum(got[1]), numbers.sum()) << "a copy, although the same memory is shared too";
  }
}

TEST_P(ImportedArrays, keep_nothing_alive_if_one_of_them_cannot_be_imported) {
  ForeignNumbers numbers(place(), "allocated", kNumbers);
  int unknown = 0;
  const DlpackArray wrong{.layout = TensorLayout::contiguous(DType::int32, {1}),
                          .place = place(),
                          .base = {reinterpret_cast<std::uint64_t>(&unknown)},
                          .keep_alive = nullptr};
  expect_error(Errc::invalid_argument, [&] {
    static_cast<void>(import_tensors(*here_, std::vector<ImportRequest>{{numbers.array(), {}}, {wrong, {}}}));
  });
  EXPECT_EQ(numbers.kept(), 0);
  EXPECT_EQ(blocks(), 0U);
  EXPECT_TRUE(import_tensors(*here_, {}).empty());
}

DROVER_INSTANTIATE_ON_DEVICES(ImportedArrays);

}  // namespace
}  // namespace drover::test
