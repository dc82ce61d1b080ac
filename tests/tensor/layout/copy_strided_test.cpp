// Copies between layouts, compared with copies element by element.
#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "drover/tensor/tensor_layout.hpp"
#include "support/expect_error.hpp"
#include "tensor/layout/reference.hpp"

namespace drover::tensor {
namespace {

using test::Dice;
using test::expect_error;
using test::places_of;
using Numbers = std::vector<std::int64_t>;

std::vector<std::byte> random_bytes(Dice& dice, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(dice.roll(0, 255));
  return bytes;
}

// A random layout of `shape`, without overlaps: dimensions in any order, with gaps.
TensorLayout spread(Dice& dice, DType dtype, const Numbers& shape) {
  Numbers order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(dice.roll(0, static_cast<std::int64_t>(i) - 1))]);
  }
  Numbers strides(shape.size(), 1);
  std::int64_t way = dice.roll(0, 2) == 0 ? dice.roll(1, 3) : 1;
  for (const auto dim : order) {
    strides[static_cast<std::size_t>(dim)] = way;
    way *= std::max<std::int64_t>(shape[static_cast<std::size_t>(dim)], 1);
    if (dice.roll(0, 3) == 0) way += dice.roll(1, 3);
  }
  return TensorLayout::strided(dtype, shape, strides, dice.roll(0, 4));
}

void copy_one_by_one(std::span<std::byte> to, const TensorLayout& to_layout, std::span<const std::byte> from,
                     const TensorLayout& from_layout) {
  const auto to_places = places_of(to_layout).at;
  const auto from_places = places_of(from_layout).at;
  const auto size = size_of(to_layout.dtype());
  for (std::size_t i = 0; i < to_places.size(); ++i) {
    std::memcpy(&to[static_cast<std::size_t>(to_places[i]) * size],
                &from[static_cast<std::size_t>(from_places[i]) * size], size);
  }
}

TEST(CopyStrided, random_layouts_of_all_types_match_a_naive_copy) {
  Dice dice(21);
  for (int round = 0; round < 4000; ++round) {
    const DType dtype = kAllDTypes.at(static_cast<std::size_t>(dice.roll(0, kAllDTypes.size() - 1)));
    const auto shape = dice.shape(5, 4);
    const auto to_layout = spread(dice, dtype, shape);
    auto from_layout = dice.roll(0, 4) == 0 ? to_layout : spread(dice, dtype, shape);
    if (dice.roll(0, 4) == 0) from_layout = TensorLayout::contiguous(dtype, {}).expand(shape);
    const auto from = random_bytes(dice, from_layout.extent_bytes().end);
    auto to = random_bytes(dice, to_layout.extent_bytes().end);
    auto expected = to;
    copy_one_by_one(expected, to_layout, from, from_layout);
    copy_strided(to, to_layout, from, from_layout);
    ASSERT_EQ(to, expected) << to_string(from_layout) << " to " << to_string(to_layout);
  }
}

TEST(CopyStrided, transposed_matrix_is_copied_to_contiguous) {
  const std::vector<std::int32_t> from = {1, 2, 3, 4, 5, 6};
  std::vector<std::int32_t> to(6);
  const auto matrix = TensorLayout::contiguous(DType::int32, {2, 3});
  copy_strided(std::as_writable_bytes(std::span(to)), TensorLayout::contiguous(DType::int32, {3, 2}),
               std::as_bytes(std::span(from)), matrix.transpose(0, 1));
  EXPECT_EQ(to, (std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}));
}

TEST(CopyStrided, scalars_and_empty_layouts_are_copied) {
  std::vector<std::byte> to(3, std::byte{1});
  const std::vector<std::byte> from(3, std::byte{2});
  copy_strided(to, TensorLayout::strided(DType::uint8, {}, {}, 1), from, TensorLayout::contiguous(DType::uint8, {}));
  EXPECT_EQ(to, (std::vector{std::byte{1}, std::byte{2}, std::byte{1}}));
  const auto none = TensorLayout::strided(DType::uint8, {4, 0}, {9, 9}, 1000);
  copy_strided(to, none, {}, none);
  EXPECT_EQ(to[1], std::byte{2});
}

TEST(CopyStrided, memory_one_byte_too_short_throws) {
  const auto layout = TensorLayout::strided(DType::int32, {2, 2}, {3, 1}, 1);
  std::vector<std::byte> whole(24);
  std::vector<std::byte> less(23);
  const std::vector<std::byte> other(24, std::byte{3});
  copy_strided(whole, layout, other, layout);
  EXPECT_EQ(whole[23], std::byte{3});
  expect_error(Errc::invalid_argument, [&] { copy_strided(less, layout, whole, layout); },
               {"int32[2, 2] strides [3, 1] offset 1 spans bytes 4 to 24 of a memory of 23 bytes"});
  expect_error(Errc::invalid_argument, [&] { copy_strided(whole, layout, less, layout); }, {"of 23 bytes"});
}

TEST(CopyStrided, mismatched_layouts_throw) {
  std::vector<std::byte> memory(64);
  const auto layout = TensorLayout::contiguous(DType::int32, {2, 2});
  for (const auto& other :
       {TensorLayout::contiguous(DType::float32, {2, 2}), layout.reshape({4}), layout.slice(0, 1)}) {
    expect_error(Errc::invalid_argument, [&] { copy_strided(memory, layout, memory, other); },
                 {"cannot be copied to int32[2, 2]", "the same type and shape"});
  }
}

TEST(CopyStrided, expanded_target_throws) {
  std::vector<std::byte> memory(64);
  const auto wide = TensorLayout::contiguous(DType::int32, {1}).expand({4});
  expect_error(Errc::invalid_argument, [&] { copy_strided(memory, wide, memory, wide); },
               {"one place for the 4 elements of dimension 0"});
}

TEST(CopyStrided, invalid_layout_throws) {
  std::vector<std::byte> memory(64);
  TensorLayout spoiled = TensorLayout::contiguous(DType::int8, {4});
  const std::int64_t negative = -8;
  std::memcpy(static_cast<void*>(&spoiled), &negative, sizeof(negative));
  const auto right = TensorLayout::contiguous(DType::int8, {4});
  expect_error(Errc::invalid_argument, [&] { copy_strided(memory, right, memory, spoiled); }, {"is_valid"});
  expect_error(Errc::invalid_argument, [&] { copy_strided(memory, spoiled, memory, right); }, {"is_valid"});
}

}  // namespace
}  // namespace drover::tensor
