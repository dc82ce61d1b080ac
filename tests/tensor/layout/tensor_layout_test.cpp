// Layouts: properties and errors.
#include "drover/tensor/tensor_layout.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "tensor/layout/reference.hpp"

namespace drover::tensor {
namespace {

using test::Dice;
using test::expect_error;
using test::places_of;

constexpr std::int64_t kHuge = std::int64_t{1} << 62U;

std::vector<std::int64_t> numbers(std::span<const std::int64_t> span) { return {span.begin(), span.end()}; }

using Numbers = std::vector<std::int64_t>;

TEST(TensorLayout, contiguous_layout_is_row_major) {
  const auto layout = TensorLayout::contiguous(DType::float32, {2, 3, 4});
  EXPECT_EQ(layout.dtype(), DType::float32);
  EXPECT_EQ(layout.rank(), 3);
  EXPECT_EQ(numbers(layout.shape()), Numbers({2, 3, 4}));
  EXPECT_EQ(numbers(layout.strides()), Numbers({12, 4, 1}));
  EXPECT_EQ(layout.offset(), 0);
  EXPECT_EQ(layout.element_count(), 24);
  EXPECT_EQ(layout.bytes(), 96U);
  EXPECT_EQ(layout.extent_bytes(), (ByteRange{0, 96}));
  EXPECT_TRUE(layout.is_contiguous());
  const auto places = places_of(layout);
  for (std::size_t i = 0; i < places.at.size(); ++i) EXPECT_EQ(places.at[i], static_cast<std::int64_t>(i));
}

TEST(TensorLayout, scalar_has_no_dimensions) {
  const auto layout = TensorLayout::contiguous(DType::complex128, {});
  EXPECT_EQ(layout.rank(), 0);
  EXPECT_EQ(layout.element_count(), 1);
  EXPECT_EQ(layout.extent_bytes(), (ByteRange{0, 16}));
  EXPECT_TRUE(layout.is_contiguous());
}

TEST(TensorLayout, default_layout_is_empty) {
  const TensorLayout layout;
  EXPECT_EQ(layout.element_count(), 0);
  EXPECT_EQ(layout.extent_bytes(), (ByteRange{0, 0}));
  EXPECT_TRUE(layout.is_valid());
  EXPECT_EQ(layout, TensorLayout::contiguous(DType::uint8, {0}));
}

TEST(TensorLayout, empty_layout_has_no_extent) {
  const auto layout = TensorLayout::strided(DType::int32, {3, 0, 2}, {2, 2, 1}, 100);
  EXPECT_EQ(layout.element_count(), 0);
  EXPECT_EQ(layout.bytes(), 0U);
  EXPECT_EQ(layout.extent_bytes(), (ByteRange{0, 0}));
  EXPECT_TRUE(layout.is_contiguous());
}

TEST(TensorLayout, dims_convert_from_any_sequence) {
  const Numbers vector = {4, 5};
  const std::array<std::int64_t, 2> array = {4, 5};
  const auto layout = TensorLayout::contiguous(DType::int8, vector);
  EXPECT_EQ(layout, TensorLayout::contiguous(DType::int8, array));
  EXPECT_EQ(layout, TensorLayout::contiguous(DType::int8, {4, 5}));
  EXPECT_EQ(layout, TensorLayout::contiguous(DType::int8, layout.shape()));
  EXPECT_EQ(Dims({1, 2, 3}).size(), 3U);
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Dims({1, 1, 1, 1, 1, 1, 1, 1, 1})); },
               {"9 dimensions", "maximum of 8"});
}

TEST(TensorLayout, extent_spans_first_to_last_byte) {
  const auto layout = TensorLayout::strided(DType::int16, {3, 2}, {10, 3}, 7);
  EXPECT_EQ(layout.extent_bytes(), (ByteRange{14, (7 + 20 + 3 + 1) * 2}));
  EXPECT_FALSE(layout.is_contiguous());
  Dice dice(1);
  for (int i = 0; i < 500; ++i) {
    const auto shape = dice.shape(4, 4);
    Numbers strides(shape.size());
    for (auto& stride : strides) stride = dice.roll(0, 9);
    const auto random = TensorLayout::strided(DType::float64, shape, strides, dice.roll(0, 5));
    const auto at = places_of(random).at;
    const auto extent = random.extent_bytes();
    ASSERT_EQ(static_cast<std::int64_t>(at.size()), random.element_count());
    if (at.empty()) continue;
    ASSERT_EQ(extent.begin, static_cast<std::size_t>(*std::ranges::min_element(at)) * 8);
    ASSERT_EQ(extent.end, static_cast<std::size_t>(*std::ranges::max_element(at) + 1) * 8);
  }
}

TEST(TensorLayout, is_contiguous_iff_elements_have_no_gaps) {
  Dice dice(2);
  int found = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto shape = dice.shape(3, 3);
    Numbers strides(shape.size());
    for (auto& stride : strides) stride = dice.roll(0, 6);
    const auto layout = TensorLayout::strided(DType::uint8, shape, strides, dice.roll(0, 3));
    const auto at = places_of(layout).at;
    bool follows = true;
    for (std::size_t k = 1; k < at.size(); ++k) follows = follows && at[k] == at[k - 1] + 1;
    ASSERT_EQ(layout.is_contiguous(), follows) << to_string(layout);
    found += follows ? 1 : 0;
  }
  EXPECT_GT(found, 100);
  EXPECT_LT(found, 4900);
}

TEST(TensorLayout, negative_numbers_are_rejected) {
  expect_error(Errc::invalid_argument, [] { static_cast<void>(TensorLayout::contiguous(DType::int8, {2, -1})); },
               {"[2, -1]", "negative size"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(TensorLayout::strided(DType::int8, {2}, {-1})); },
               {"negative stride"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(TensorLayout::strided(DType::int8, {2}, {1}, -1)); },
               {"negative offset"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(TensorLayout::strided(DType::int8, {2, 2}, {1})); },
               {"2 dimensions has 1 strides"});
  expect_error(Errc::invalid_argument,
               [] { static_cast<void>(TensorLayout::contiguous(static_cast<DType>(99), {2})); }, {"unknown type"});
}

TEST(TensorLayout, more_than_two_to_the_62_bytes_are_rejected) {
  EXPECT_EQ(TensorLayout::contiguous(DType::uint8, {kHuge}).bytes(), std::size_t{1} << 62U);
  EXPECT_EQ(TensorLayout::contiguous(DType::complex128, {kHuge / 16}).bytes(), std::size_t{1} << 62U);
  const std::vector<std::pair<Numbers, Numbers>> refused = {
      {{kHuge + 1}, {1}}, {{kHuge / 2, 3}, {3, 1}},        {{kHuge, kHuge, kHuge}, {0, 0, 0}},
      {{2}, {kHuge}},     {{kHuge, 0, 4}, {4, 4, 1}},      {{kToEnd}, {0}},
      {{1}, {kToEnd}},    {{3, 3}, {kHuge / 4, kHuge / 4}}};
  for (const auto& [shape, strides] : refused) {
    expect_error(Errc::invalid_argument,
                 [&] { static_cast<void>(TensorLayout::strided(DType::uint8, shape, strides)); }, {"2^62"});
  }
  expect_error(Errc::invalid_argument,
               [] { static_cast<void>(TensorLayout::strided(DType::uint8, {1}, {1}, kHuge)); }, {"2^62"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(TensorLayout::contiguous(DType::int16, {kHuge})); },
               {"2^62"});
  expect_error(Errc::invalid_argument,
               [] { static_cast<void>(TensorLayout::contiguous(DType::uint8, {kHuge, kHuge, kHuge, kHuge})); },
               {"2^62"});
}

TEST(TensorLayout, equality_compares_all_fields) {
  const auto layout = TensorLayout::strided(DType::int8, {2, 2}, {2, 1}, 0);
  EXPECT_EQ(layout, TensorLayout::contiguous(DType::int8, {2, 2}));
  EXPECT_NE(layout, TensorLayout::contiguous(DType::uint8, {2, 2}));
  EXPECT_NE(layout, TensorLayout::contiguous(DType::int8, {2, 2, 1}));
  EXPECT_NE(layout, TensorLayout::strided(DType::int8, {2, 2}, {1, 2}, 0));
  EXPECT_NE(layout, TensorLayout::strided(DType::int8, {2, 2}, {2, 1}, 1));
}

// Any change of a byte is either detected or gives another valid layout.
TEST(TensorLayout, is_valid_checks_layouts_from_bytes) {
  const auto layout = TensorLayout::contiguous(DType::float32, {2, 3}).transpose(0, 1);
  std::array<unsigned char, sizeof(TensorLayout)> bytes{};
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  int refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const unsigned value : {0x80U, 0xffU, 0x09U}) {
      auto spoiled = bytes;
      spoiled.at(i) = static_cast<unsigned char>(value);
      TensorLayout read;
      std::memcpy(static_cast<void*>(&read), spoiled.data(), sizeof(read));
      if (!read.is_valid()) {
        ++refused;
        continue;
      }
      const auto made = TensorLayout::strided(read.dtype(), read.shape(), read.strides(), read.offset());
      EXPECT_EQ(made, read) << "byte " << i;
    }
  }
  EXPECT_GT(refused, 250);
  EXPECT_TRUE(layout.is_valid());
}

TEST(TensorLayout, text_shows_strides_only_if_not_contiguous) {
  const auto layout = TensorLayout::contiguous(DType::float32, {2, 3});
  EXPECT_EQ(to_string(layout), "float32[2, 3]");
  EXPECT_EQ(to_string(layout.transpose(0, 1)), "float32[3, 2] strides [1, 3]");
  EXPECT_EQ(to_string(layout.slice(1, 1)), "float32[2, 2] strides [3, 1] offset 1");
  EXPECT_EQ(to_string(layout.select(0, 1)), "float32[3]");
  EXPECT_EQ(to_string(TensorLayout::contiguous(DType::boolean, {})), "boolean[]");
}

}  // namespace
}  // namespace drover::tensor
