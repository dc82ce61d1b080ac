// Tensors in one process, at every place.
#include "drover/tensor/tensor.hpp"

#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/tensor/send.hpp"
#include "drover/tensor/serialize.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;
using test::Gate;
using test::TestSession;

class TensorAt : public test::PlaceTest {
 protected:
  // 0, 1, 2, ... in this shape.
  [[nodiscard]] Tensor counted(const Dims& shape, DType dtype = DType::int32) const {
    std::int64_t count = 1;
    for (const auto size : shape.numbers()) count *= size;
    return arange(memory_, dtype, 0, count, place()).reshape(shape);
  }
  static std::vector<std::int32_t> numbers(const Tensor& tensor) {
    const Tensor host = tensor.to(Place::cpu()).contiguous();
    const auto elements = host.elements<std::int32_t>();
    return {elements.begin(), elements.end()};
  }

  TestSession session_;
  Memory memory_{session_.join()};
};

using Ints = std::vector<std::int32_t>;

TEST_P(TensorAt, elements_read_back_as_written) {
  const Ints given = {5, -6, 7};
  const Tensor tensor = from_values<std::int32_t>(memory_, given, place());
  EXPECT_EQ(tensor.place(), place());
  EXPECT_EQ(numbers(tensor), given);
  EXPECT_EQ(tensor.select(0, 1).item<std::int32_t>(), -6);
}

TEST_P(TensorAt, fill_arange_and_equal_work_for_every_type) {
  for (const DType dtype : kAllDTypes) {
    const Tensor ones = full(memory_, dtype, {3, 5}, 1, place());
    EXPECT_TRUE(equal(ones, full(memory_, dtype, {3, 5}, true))) << to_string(dtype);
    EXPECT_FALSE(equal(ones, zeros(memory_, dtype, {3, 5}, place()))) << to_string(dtype);
    const Tensor two = arange(memory_, dtype, 0, 2, place());
    EXPECT_TRUE(equal(two.slice(0, 1), full(memory_, dtype, {1}, 1)));
    EXPECT_TRUE(equal(random(memory_, dtype, {100}, 7, place()), random(memory_, dtype, {100}, 7)));
    EXPECT_FALSE(equal(random(memory_, dtype, {100}, 7, place()), random(memory_, dtype, {100}, 8)));
  }
}

TEST_P(TensorAt, views_share_elements) {
  const Tensor tensor = counted({2, 3});
  const Tensor column = tensor.select(1, 2);
  EXPECT_EQ(numbers(column), (Ints{2, 5}));
  column.fill(9);
  EXPECT_EQ(numbers(tensor), (Ints{0, 1, 9, 3, 4, 9}));
  EXPECT_EQ(numbers(tensor.transpose(0, 1)), (Ints{0, 3, 1, 4, 9, 9}));
  EXPECT_EQ(numbers(tensor.slice(1, 0, kToEnd, 2)), (Ints{0, 9, 3, 9}));
  EXPECT_EQ(numbers(tensor.permute({1, 0}).unsqueeze(0).squeeze(0)), (Ints{0, 3, 1, 4, 9, 9}));
  EXPECT_EQ(numbers(tensor.select(0, 0).expand({2, 3})), (Ints{0, 1, 9, 0, 1, 9}));
}

TEST_P(TensorAt, split_returns_views) {
  const Tensor tensor = counted({5});
  const auto parts = tensor.split(2);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(numbers(parts[0]), (Ints{0, 1, 2}));
  parts[1].fill(-1);
  EXPECT_EQ(numbers(tensor), (Ints{0, 1, 2, -1, -1}));
}

TEST_P(TensorAt, reshape_returns_a_view_if_possible_and_a_copy_otherwise) {
  const Tensor tensor = counted({2, 3});
  tensor.reshape({3, 2}).fill(4);
  EXPECT_EQ(numbers(tensor), (Ints{4, 4, 4, 4, 4, 4}));
  const Tensor turned = counted({2, 3}).transpose(0, 1);
  const Tensor flat = turned.reshape({-1});
  EXPECT_EQ(numbers(flat), (Ints{0, 3, 1, 4, 2, 5}));
  flat.fill(0);
  EXPECT_EQ(numbers(turned), (Ints{0, 3, 1, 4, 2, 5}));
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(turned.reshape({7})); }, {"7"});
}

TEST_P(TensorAt, contiguous_copies_only_if_needed) {
  const Tensor tensor = counted({2, 3});
  tensor.contiguous().fill(1);
  EXPECT_EQ(numbers(tensor), Ints(6, 1));
  const Tensor turned = tensor.transpose(0, 1).contiguous();
  turned.fill(2);
  EXPECT_EQ(numbers(tensor), Ints(6, 1));
  tensor.copy().fill(3);
  EXPECT_EQ(numbers(tensor), Ints(6, 1));
}

TEST_P(TensorAt, strided_elements_are_copied_between_all_places) {
  for (const Place& other : {place(), Place::cpu(), Place::parse("host:0"), Place::parse("host:1")}) {
    const Tensor source = counted({40, 50}).transpose(0, 1);  // 2000 pieces of one element
    const Tensor far = empty(memory_, DType::int32, {50, 80}, other).slice(1, 1, kToEnd, 2);
    far.copy_from(source);
    EXPECT_TRUE(equal(far, source)) << to_string(other);
    const Tensor back = empty(memory_, DType::int32, {50, 40}, place());
    back.copy_from(far);
    EXPECT_TRUE(equal(back, source)) << to_string(other);
    const Tensor rows = empty(memory_, DType::int32, {40, 100}, other).slice(1, 10, 60);  // 40 pieces
    rows.copy_from(counted({40, 50}));
    EXPECT_TRUE(equal(rows, counted({40, 50}))) << to_string(other);
  }
}

TEST_P(TensorAt, a_strided_copy_preserves_the_gaps) {
  const Tensor all = full(memory_, DType::int32, {600, 2}, 7, place());
  all.select(1, 0).copy_from(arange(memory_, DType::int32, 0, 600));
  EXPECT_EQ(sum(all.select(1, 1)), 600.0 * 7);
  EXPECT_EQ(sum(all.select(1, 0)), 600.0 * 599 / 2);
}

TEST_P(TensorAt, large_tensors_are_copied_between_devices) {
  const std::int64_t count = 9 * static_cast<std::int64_t>(kMiB) / 4 * 3 + 1;  // not a multiple of the staging buffer
  const Tensor tensor = random(memory_, DType::int32, {count}, 3, place());
  const Tensor far = tensor.to(Place::parse("host:1"));
  EXPECT_EQ(far.place(), Place::parse("host:1"));
  EXPECT_TRUE(equal(far.to(place()), tensor));
}

TEST_P(TensorAt, to_copies_nothing_if_the_place_is_the_same) {
  const Tensor tensor = counted({4});
  tensor.to(place()).fill(8);
  EXPECT_EQ(numbers(tensor), Ints(4, 8));
}

TEST_P(TensorAt, sum_add_and_scale_compute_elementwise) {
  const Tensor tensor = counted({4, 4});
  EXPECT_EQ(sum(tensor), 120.0);
  EXPECT_EQ(numbers(add(tensor, tensor)).back(), 30);
  EXPECT_EQ(numbers(scale(tensor, -2)).back(), -30);
  EXPECT_EQ(add(tensor, tensor).place(), place());
  EXPECT_EQ(sum(tensor.transpose(0, 1).select(0, 1)), 1.0 + 5 + 9 + 13);
  EXPECT_EQ(sum(full(memory_, DType::float16, {3}, 0.5, place())), 1.5);
  EXPECT_EQ(sum(full(memory_, DType::boolean, {3}, true, place())), 3.0);
}

TEST_P(TensorAt, all_close_respects_both_tolerances) {
  const Tensor one = full(memory_, DType::float32, {3}, 1.0, place());
  EXPECT_TRUE(all_close(one, full(memory_, DType::float32, {3}, 1.000001)));
  EXPECT_FALSE(all_close(one, full(memory_, DType::float32, {3}, 1.1)));
  EXPECT_TRUE(all_close(one, full(memory_, DType::float32, {3}, 1.1), 0.0, 0.2));
  EXPECT_FALSE(all_close(one, full(memory_, DType::float32, {4}, 1.0)));
  EXPECT_FALSE(all_close(one, full(memory_, DType::float32, {3}, std::nan(""))));
  EXPECT_FALSE(all_close(one, full(memory_, DType::float32, {3}, HUGE_VAL)));
}

TEST_P(TensorAt, text_names_the_place_and_is_abbreviated) {
  EXPECT_EQ(to_string(counted({2, 2})), "[[0, 1],\n [2, 3]]\nint32[2, 2] at " + GetParam());
  const Tensor large = counted({300, 300});
  EXPECT_LT(to_string(large).size(), 1000U);
  EXPECT_EQ(to_string(large),
            to_string(large.to(Place::cpu())).replace(to_string(large).rfind("at"), 6, "at " + GetParam()));
}

TEST_P(TensorAt, bytes_round_trip) {
  const Tensor tensor = random(memory_, DType::bfloat16, {3, 4}, 5, place()).transpose(0, 1);
  const Tensor rows = tensor.to(Place::cpu()).contiguous();
  const auto bytes = serialize(std::vector<NamedArray>{{"x", rows.layout(), rows.element_bytes()}});
  const auto arrays = parse_serialized(bytes);
  EXPECT_TRUE(equal(from_bytes(memory_, arrays.at(0).layout, arrays.at(0).memory, place()), tensor));
}

TEST_P(TensorAt, empty_tensors_support_all_operations) {
  const Tensor none = zeros(memory_, DType::float32, {0, 3}, place());
  EXPECT_EQ(sum(none), 0.0);
  EXPECT_TRUE(equal(none.copy(), none.to(Place::cpu())));
  EXPECT_EQ(to_string(none), "[]\nfloat32[0, 3] at " + GetParam());
  EXPECT_EQ(arange(memory_, DType::int8, 5, 5, place()).element_count(), 0);
}

TEST_P(TensorAt, memory_is_released_with_the_last_view) {
  Tensor view;
  {
    const Tensor tensor = counted({64});
    view = tensor.slice(0, 10, 12);
  }
  EXPECT_EQ(numbers(view), (Ints{10, 11}));
  EXPECT_GT(memory_.claimed(place()), 0U);
  view.synchronize();
  view = Tensor();
  EXPECT_EQ(memory_.claimed(place()), 0U);
}

TEST_P(TensorAt, threads_can_use_views_of_one_tensor) {
  const Tensor tensor = zeros(memory_, DType::int32, {8, 1000}, place());
  std::vector<std::jthread> threads;
  for (int row = 0; row < 8; ++row) {
    threads.emplace_back([&, row] {
      const Tensor mine = tensor.select(0, row);
      for (int time = 0; time < 20; ++time) mine.copy_from(full(memory_, DType::int32, {1000}, row + time));
    });
  }
  threads.clear();
  for (int row = 0; row < 8; ++row) EXPECT_EQ(sum(tensor.select(0, row)), 1000.0 * (row + 19));
}

DROVER_INSTANTIATE_AT_PLACES(TensorAt);

class TensorOnDevice : public TensorAt {};

TEST_P(TensorOnDevice, reads_wait_for_work_of_other_streams) {
  Gate gate(place());
  const Tensor tensor = zeros(memory_, DType::uint8, {1000}, place());
  gate.fill(tensor, 3);
  EXPECT_FALSE(tensor.is_ready());
  const Tensor copied = tensor.to(Place::cpu());
  EXPECT_FALSE(copied.is_ready());
  expect_error(Errc::timed_out, [&] {
    static_cast<void>(copied.elements<std::uint8_t>(Deadline::after(std::chrono::milliseconds(5))));
  });
  gate.open();
  EXPECT_EQ(sum(copied), 3000.0);
  EXPECT_TRUE(tensor.is_ready());
}

TEST_P(TensorOnDevice, work_through_another_view_is_ordered_first) {
  const Tensor tensor = zeros(memory_, DType::uint8, {1000}, place());
  tensor.synchronize();
  PackedTensors packed = pack_all({&tensor, 1});
  const Tensor same = unpack_all(memory_, packed.record, packed.leases).front();
  const Tensor copied = empty(memory_, DType::uint8, {1000}, place());
  const auto stream = backend_of(place().backend).open(place().index).create_stream();
  {
    Gate gate(place());
    const Tensor source = empty(memory_, DType::uint8, {1000}, place());
    gate.fill(source, 3);
    tensor.copy_from(source);
    same.begin_use(*stream);
    stream->copy(copied.device_ptr(), same.device_ptr(), 1000);
    same.end_use(*stream);
    copied.end_use(*stream);
    EXPECT_EQ(stream->synchronize(Deadline::after(std::chrono::milliseconds(20))), WaitResult::timed_out);
    gate.open();
  }
  EXPECT_EQ(sum(copied), 3000.0);
}

TEST_P(TensorOnDevice, memory_is_released_only_after_the_work_that_uses_it) {
  Gate gate(place());
  gate.hold(zeros(memory_, DType::uint8, {100'000}, place()));
  EXPECT_GT(memory_.claimed(place()), 0U);
  const Tensor other = full(memory_, DType::uint8, {100'000}, 1, place());
  gate.open();
  other.synchronize();
  EXPECT_TRUE(test::eventually([&] { return memory_.claimed(place()) <= 2 * 100'000; }));
}

TEST_P(TensorOnDevice, an_exhausted_budget_waits_for_retired_memory) {
  Memory memory(session_.join(), {.budgets = {{place(), 3 * kMiB}}});
  Gate gate(place());
  gate.hold(empty(memory, DType::uint8, {static_cast<std::int64_t>(2 * kMiB)}, place()));
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  EXPECT_EQ(sum(zeros(memory, DType::uint8, {static_cast<std::int64_t>(2 * kMiB)}, place())), 0.0);
}

TEST_P(TensorOnDevice, device_ptr_points_to_the_first_element) {
  const Tensor tensor = counted({10});
  EXPECT_EQ(tensor.slice(0, 3).device_ptr().address, tensor.device_ptr().address + 12);
}

DROVER_INSTANTIATE_ON_DEVICES(TensorOnDevice);

class TensorErrors : public ::testing::Test {
 protected:
  TestSession session_;
  Memory memory_{session_.join()};
};

TEST_F(TensorErrors, a_tensor_without_memory_throws) {
  const Tensor none;
  EXPECT_FALSE(none.is_open());
  EXPECT_EQ(to_string(none), "[]\nuint8[0] without memory");
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(none.place()); }, {"has no memory"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(none.copy()); });
  expect_error(Errc::invalid_argument, [&] { none.fill(0); });
  expect_error(Errc::invalid_argument, [&] { none.synchronize(); });
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(none.elements<std::uint8_t>()); });
}

TEST_F(TensorErrors, errors_name_wrong_types_shapes_and_places) {
  const Tensor tensor = zeros(memory_, DType::float32, {2, 3});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(tensor.elements<double>()); }, {"float64"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(tensor.transpose(0, 1).elements<float>()); },
               {"contiguous()"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(tensor.item<float>()); }, {"float32[2, 3]"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(tensor.device_ptr()); }, {"host memory"});
  expect_error(Errc::invalid_argument, [&] { tensor.copy_from(zeros(memory_, DType::float32, {3, 2})); },
               {"cannot be copied"});
  expect_error(Errc::invalid_argument, [&] { tensor.select(0, 0).expand({4, 3}).fill(1); }, {"expanded"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(add(tensor, tensor.transpose(0, 1))); }, {"added"});
  expect_error(Errc::not_found, [&] { static_cast<void>(tensor.to(Place::parse("host:99"))); }, {"host:99"});
  expect_error(Errc::unsupported, [&] { static_cast<void>(sum(zeros(memory_, DType::complex64, {1}))); },
               {"complex64"});
}

TEST_F(TensorErrors, arange_rejects_ranges_that_the_type_cannot_represent) {
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(arange(memory_, DType::int8, 0, 129)); },
               {"int8 cannot count from 0 up to 129"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(arange(memory_, DType::uint8, -1, 2)); });
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(arange(memory_, DType::float16, 0, 2050)); });
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(arange(memory_, DType::int64, 3, 2)); });
  expect_error(Errc::invalid_argument, [&] {
    static_cast<void>(arange(memory_, DType::int64, std::numeric_limits<std::int64_t>::min(), 0));
  });
  EXPECT_EQ(sum(arange(memory_, DType::int8, -128, 128)), -128.0);
  EXPECT_EQ(sum(arange(memory_, DType::float16, 2047, 2049)), 4095.0);
}

TEST_F(TensorErrors, from_bytes_rejects_a_layout_that_exceeds_the_bytes) {
  const std::array<std::byte, 7> bytes{};
  expect_error(Errc::invalid_argument,
               [&] { static_cast<void>(from_bytes(memory_, TensorLayout::contiguous(DType::int32, {2}), bytes)); });
}

TEST_F(TensorErrors, random_numbers_are_in_range) {
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    const Tensor numbers = random(memory_, dtype, {10'000}, 1);
    const double mean = sum(numbers) / 10'000;
    EXPECT_GT(mean, 0.48) << to_string(dtype);
    EXPECT_LT(mean, 0.52) << to_string(dtype);
    EXPECT_FALSE(equal(numbers, full(memory_, dtype, {10'000}, 1)));
  }
}

}  // namespace
}  // namespace drover::tensor
