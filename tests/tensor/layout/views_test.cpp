// Views: chosen cases, and random chains compared with a naive model.
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/tensor/tensor_layout.hpp"
#include "support/expect_error.hpp"
#include "tensor/layout/reference.hpp"

namespace drover::tensor {
namespace {

using test::Dice;
using test::expect_error;
using test::Places;
using test::places_of;
using test::view_of;
using Numbers = std::vector<std::int64_t>;
using Index = std::vector<std::int64_t>;

constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

TensorLayout cube() { return TensorLayout::contiguous(DType::int32, {2, 3, 4}); }

TEST(View, select_removes_a_dimension) {
  EXPECT_EQ(cube().select(1, 2), TensorLayout::strided(DType::int32, {2, 4}, {12, 1}, 8));
  EXPECT_EQ(cube().select(-1, -1), TensorLayout::strided(DType::int32, {2, 3}, {12, 4}, 3));
  EXPECT_EQ(cube().select(0, 1).select(0, 1).select(0, 1), TensorLayout::strided(DType::int32, {}, {}, 17));
}

TEST(View, select_out_of_range_throws) {
  for (const std::int64_t index : {std::int64_t{3}, std::int64_t{-4}, kLeast, kMost}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().select(1, index)); },
                 {"index " + std::to_string(index), "dimension 1", "int32[2, 3, 4]", "size is 3", "from -3 to 2"});
  }
  expect_error(Errc::invalid_argument, [] { static_cast<void>(cube().slice(0, 2).select(0, 0)); }, {"size is 0"});
}

TEST(View, invalid_dimension_throws) {
  for (const int dim : {3, -4, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().select(dim, 0)); },
                 {"select", "from -3 to 2"});
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().slice(dim, 0)); }, {"slice"});
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().transpose(0, dim)); }, {"transpose"});
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().transpose(dim, 0)); }, {"transpose"});
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().squeeze(dim)); }, {"squeeze"});
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().split(2, dim)); }, {"split"});
  }
  const auto single = TensorLayout::contiguous(DType::int8, {});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(single.select(0, 0)); }, {"with dimensions"});
}

TEST(View, slice_clamps_as_python_does) {
  const auto row = TensorLayout::contiguous(DType::int8, {10});
  const auto at = [&](std::int64_t begin, std::int64_t end, std::int64_t step) {
    return places_of(row.slice(0, begin, end, step)).at;
  };
  EXPECT_EQ(at(2, 5, 1), Numbers({2, 3, 4}));
  EXPECT_EQ(at(0, kToEnd, 4), Numbers({0, 4, 8}));
  EXPECT_EQ(at(-3, kToEnd, 1), Numbers({7, 8, 9}));
  EXPECT_EQ(at(-100, -8, 1), Numbers({0, 1}));
  EXPECT_EQ(at(8, 100, 1), Numbers({8, 9}));
  EXPECT_EQ(at(5, 5, 1), Numbers());
  EXPECT_EQ(at(7, 3, 1), Numbers());
  EXPECT_EQ(at(100, 200, 1), Numbers());
  EXPECT_EQ(at(kLeast, kMost, 9), Numbers({0, 9}));
  EXPECT_EQ(at(3, kToEnd, kMost), Numbers({3}));
  EXPECT_EQ(at(kMost, kLeast, kMost), Numbers());
}

TEST(View, slice_with_step_below_one_throws) {
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{-1}, kLeast}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().slice(2, 0, 4, step)); },
                 {"dimension 2", "size is 4", "step " + std::to_string(step)});
  }
}

TEST(View, permute_requires_each_dimension_once) {
  EXPECT_EQ(cube().permute({2, 0, 1}), TensorLayout::strided(DType::int32, {4, 2, 3}, {1, 12, 4}));
  EXPECT_EQ(cube().permute({-1, 0, -2}), cube().permute({2, 0, 1}));
  EXPECT_EQ(cube().transpose(0, -1), cube().permute({2, 1, 0}));
  for (const auto& order : {Numbers{0, 1}, Numbers{0, 1, 1}, Numbers{0, 1, 3}, Numbers{0, 1, 2, 3}, Numbers{-4, 1, 2},
                            Numbers{0, 2, -1}, Numbers{}, Numbers{kLeast, kMost, 0}}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().permute(order)); },
                 {"is not a permutation of the 3 dimensions"});
  }
}

TEST(View, unsqueeze_and_squeeze_are_inverse) {
  for (int dim = -4; dim <= 3; ++dim) {
    const auto wider = cube().unsqueeze(dim);
    EXPECT_EQ(wider.rank(), 4);
    EXPECT_TRUE(wider.is_contiguous());
    EXPECT_TRUE(wider.is_valid());
    EXPECT_EQ(wider.squeeze(dim), cube());
  }
  EXPECT_EQ(cube().unsqueeze(-1).shape()[3], 1);
  expect_error(Errc::invalid_argument, [] { static_cast<void>(cube().unsqueeze(4)); }, {"from -4 to 3"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(cube().unsqueeze(-5)); }, {"position -5"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(cube().squeeze(1)); }, {"dimension 1", "size is 3"});
  const auto full = TensorLayout::contiguous(DType::int8, {1, 1, 1, 1, 1, 1, 1, 1});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(full.unsqueeze(0)); }, {"at most 8 dimensions"});
  EXPECT_EQ(full.squeeze(3).rank(), 7);
}

TEST(View, expand_repeats_dimensions_of_size_one) {
  const auto column = TensorLayout::contiguous(DType::int8, {3, 1});
  const auto wide = column.expand({2, 3, 4});
  EXPECT_EQ(wide, TensorLayout::strided(DType::int8, {2, 3, 4}, {0, 1, 0}));
  EXPECT_EQ(wide.extent_bytes(), (ByteRange{0, 3}));
  EXPECT_EQ(TensorLayout::contiguous(DType::int8, {}).expand({5}).element_count(), 5);
  EXPECT_EQ(column.expand({3, 0}).element_count(), 0);
  EXPECT_EQ(column.expand({3, 1}), column);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(column.expand({4, 4})); },
               {"dimension 0 has size 3", "[4, 4]"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(column.expand({1})); }, {"dimension 0 has size 3"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(column.expand({3, -1})); }, {"negative size"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(column.expand({kMost, 3, 2})); }, {"2^62"});
}

TEST(View, split_parts_differ_by_at_most_one) {
  const auto row = TensorLayout::contiguous(DType::int8, {10, 2});
  const auto parts = row.split(4, 0);
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0], row.slice(0, 0, 3));
  EXPECT_EQ(parts[1], row.slice(0, 3, 6));
  EXPECT_EQ(parts[2], row.slice(0, 6, 8));
  EXPECT_EQ(parts[3], row.slice(0, 8, 10));
  const auto more = row.split(3, 1);
  EXPECT_EQ(more[0].shape()[1] + more[1].shape()[1], 2);
  EXPECT_EQ(more[2].element_count(), 0);
  for (const int number : {0, -1, 1'000'001}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(row.split(number, 0)); },
                 {"size is 10", std::to_string(number) + " parts"});
  }
}

TEST(View, reshape_of_a_contiguous_layout_is_always_a_view) {
  EXPECT_EQ(cube().reshape({6, 4}), TensorLayout::contiguous(DType::int32, {6, 4}));
  EXPECT_EQ(cube().reshape({-1}), TensorLayout::contiguous(DType::int32, {24}));
  EXPECT_EQ(cube().reshape({4, -1, 1, 2}), TensorLayout::contiguous(DType::int32, {4, 3, 1, 2}));
  EXPECT_EQ(cube().select(0, 1).reshape({2, 6}), TensorLayout::strided(DType::int32, {2, 6}, {6, 1}, 12));
  EXPECT_EQ(TensorLayout::contiguous(DType::int8, {1, 1}).reshape({}).rank(), 0);
  EXPECT_EQ(TensorLayout::contiguous(DType::int8, {0, 3}).reshape({5, 0}).element_count(), 0);
  EXPECT_EQ(TensorLayout::contiguous(DType::int8, {0, 3}).reshape({-1, 3}).shape()[0], 0);
}

TEST(View, reshape_that_strides_cannot_express_throws) {
  expect_error(Errc::invalid_argument, [] { static_cast<void>(cube().transpose(0, 1).reshape({6, 4})); },
               {"int32[3, 2, 4] strides [4, 12, 1]", "[6, 4]", "no strides describe", "contiguous layout first"});
  EXPECT_EQ(cube().transpose(0, 1).reshape({3, 2, 2, 2}),
            TensorLayout::strided(DType::int32, {3, 2, 2, 2}, {4, 12, 2, 1}));
  EXPECT_EQ(cube().slice(0, 0, kToEnd, 2).reshape({12}).rank(), 1);
}

TEST(View, reshape_to_a_different_element_count_throws) {
  for (const auto& shape : {Numbers{5, 5}, Numbers{}, Numbers{25}, Numbers{0}, Numbers{-1, 5}, Numbers{-1, -1},
                            Numbers{-2, -12}, Numbers{-1, 0}, Numbers{kMost, kMost}, Numbers{-1, kMost, kMost}}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(cube().reshape(shape)); },
                 {"int32[2, 3, 4] cannot be reshaped to ["});
  }
  const auto none = TensorLayout::contiguous(DType::int8, {0, 3});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(none.reshape({-1, 0})); }, {"do not divide"});
}

// Whether strides exist for this shape, by derivation from the places.
bool strides_exist(const Places& places) {
  Numbers strides(places.shape.size(), 0);
  bool exist = true;
  test::for_each_index(places.shape, [&](const Index& index) {
    const auto place = places.at[test::row_number(index, places.shape)] - places.at[0];
    const auto sum = std::accumulate(index.begin(), index.end(), std::int64_t{0});
    if (sum == 1) {
      for (std::size_t i = 0; i < index.size(); ++i) strides[i] += index[i] * place;
    }
  });
  test::for_each_index(places.shape, [&](const Index& index) {
    std::int64_t place = places.at[0];
    for (std::size_t i = 0; i < index.size(); ++i) place += index[i] * strides[i];
    exist = exist && place == places.at[test::row_number(index, places.shape)];
  });
  return exist;
}

// A random shape of `count` elements.
Numbers shape_of(Dice& dice, std::int64_t count) {
  Numbers shape;
  while (count > 1 && shape.size() < 5) {
    std::int64_t size = dice.roll(1, count);
    while (count % size != 0) --size;
    shape.push_back(size);
    count /= size;
  }
  shape.push_back(count);
  return shape;
}

struct Pair {
  TensorLayout layout;
  Places places;
};

void random_slice(Dice& dice, Pair& pair, int dim) {
  const auto d = static_cast<std::size_t>(dim);
  const auto size = pair.layout.shape()[d];
  const auto begin = dice.roll(-size - 2, size + 2);
  const auto end = dice.roll(-size - 2, size + 2);
  const auto step = dice.roll(1, 3);
  pair.layout = pair.layout.slice(dim, begin, end, step);
  // As in Python: negative indices count from the end, then all are clamped.
  const auto bring = [&](std::int64_t i) { return std::clamp(i < 0 ? i + size : i, std::int64_t{0}, size); };
  Numbers picked;
  for (auto i = bring(begin); i < bring(end); i += step) picked.push_back(i);
  auto shape = pair.places.shape;
  shape[d] = static_cast<std::int64_t>(picked.size());
  pair.places = view_of(pair.places, shape, [&](Index index) {
    index[d] = picked[static_cast<std::size_t>(index[d])];
    return index;
  });
}

void random_select(Dice& dice, Pair& pair, int dim) {
  const auto size = pair.layout.shape()[static_cast<std::size_t>(dim)];
  if (size == 0) return;
  const auto picked = dice.roll(-size, size - 1);
  pair.layout = pair.layout.select(dim, picked);
  auto shape = pair.places.shape;
  shape.erase(shape.begin() + dim);
  pair.places = view_of(pair.places, shape, [&](Index index) {
    index.insert(index.begin() + dim, picked < 0 ? picked + size : picked);
    return index;
  });
}

void random_permute(Dice& dice, Pair& pair) {
  const auto rank = pair.places.shape.size();
  Numbers order(rank);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = rank; i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(dice.roll(0, static_cast<std::int64_t>(i) - 1))]);
  }
  pair.layout = pair.layout.permute(order);
  Numbers shape;
  for (const auto dim : order) shape.push_back(pair.places.shape[static_cast<std::size_t>(dim)]);
  pair.places = view_of(pair.places, shape, [&](const Index& index) {
    Index old(rank);
    for (std::size_t i = 0; i < rank; ++i) old[static_cast<std::size_t>(order[i])] = index[i];
    return old;
  });
}

void random_expand(Dice& dice, Pair& pair) {
  if (pair.places.at.size() > 200 || pair.places.shape.size() >= 6) return;
  const auto old_shape = pair.places.shape;
  auto shape = old_shape;
  for (auto& size : shape) size = size == 1 ? dice.roll(1, 3) : size;
  if (dice.roll(0, 1) == 1) shape.insert(shape.begin(), dice.roll(1, 2));
  pair.layout = pair.layout.expand(shape);
  pair.places = view_of(pair.places, shape, [&](Index index) {
    index.erase(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(shape.size() - old_shape.size()));
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = old_shape[i] == 1 ? 0 : index[i];
    return index;
  });
}

// Returns whether the view exists.
bool random_reshape(Dice& dice, Pair& pair) {
  Places wanted{.shape = shape_of(dice, pair.layout.element_count()), .at = pair.places.at};
  const bool exist = wanted.at.empty() || strides_exist(wanted);
  std::optional<TensorLayout> made;
  try {
    made = pair.layout.reshape(wanted.shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
  }
  EXPECT_EQ(made.has_value(), exist) << to_string(pair.layout);
  if (!made) return false;
  pair = {.layout = *made, .places = wanted};
  return true;
}

void random_view(Dice& dice, Pair& pair) {
  const int rank = pair.layout.rank();
  const auto kind = dice.roll(0, 6);
  if (kind == 0) random_permute(dice, pair);
  if (kind == 1) random_expand(dice, pair);
  if (kind == 2) random_reshape(dice, pair);
  if (kind == 3 && rank < 6) {
    const auto dim = dice.roll(0, rank);
    pair.layout = pair.layout.unsqueeze(static_cast<int>(dim));
    pair.places.shape.insert(pair.places.shape.begin() + dim, 1);
  }
  if (kind < 4 || rank == 0) return;
  const auto dim = static_cast<int>(dice.roll(0, rank - 1));
  if (kind == 4) random_select(dice, pair, dim);
  if (kind > 4) random_slice(dice, pair, dim);
}

TEST(View, random_chains_of_views_match_a_naive_model) {
  Dice dice(11);
  for (int round = 0; round < 3000; ++round) {
    Pair pair;
    pair.layout = TensorLayout::contiguous(DType::int16, dice.shape(4, 6));
    pair.places = places_of(pair.layout);
    for (int step = 0; step < 8; ++step) {
      random_view(dice, pair);
      ASSERT_EQ(places_of(pair.layout), pair.places) << to_string(pair.layout);
      ASSERT_TRUE(pair.layout.is_valid());
    }
  }
}

TEST(View, reshape_finds_strides_iff_they_exist) {
  Dice dice(12);
  int found = 0;
  int missing = 0;
  for (int round = 0; round < 5000; ++round) {
    Pair pair;
    pair.layout = TensorLayout::contiguous(DType::int16, dice.shape(4, 6));
    pair.places = places_of(pair.layout);
    for (int step = 0; step < 2; ++step) random_view(dice, pair);
    if (pair.layout.is_contiguous()) continue;
    (random_reshape(dice, pair) ? found : missing) += 1;
    ASSERT_EQ(places_of(pair.layout), pair.places);
  }
  EXPECT_GT(found, 300);
  EXPECT_GT(missing, 300);
}

// Views of layouts at the size limit stay within it.
TEST(View, views_of_the_largest_layouts_stay_valid) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 62U;
  const std::vector<TensorLayout> largest = {
      TensorLayout::contiguous(DType::uint8, {kLargest}),
      TensorLayout::strided(DType::uint8, {2, 0, 1}, {kLargest / 2, kLargest / 2, kLargest}),
      TensorLayout::strided(DType::uint8, {1, 1}, {kLargest, kLargest}, kLargest - 1),
      TensorLayout::contiguous(DType::complex128, {kLargest / 32, 2})};
  for (const auto& layout : largest) {
    EXPECT_TRUE(layout.is_valid());
    for (int dim = 0; dim < layout.rank(); ++dim) {
      EXPECT_TRUE(layout.unsqueeze(dim).is_valid());
      for (const std::int64_t begin : {kLeast, std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, kMost}) {
        for (const std::int64_t step : {std::int64_t{1}, std::int64_t{3}, kLargest, kMost}) {
          EXPECT_TRUE(layout.slice(dim, begin, kToEnd, step).is_valid());
        }
      }
      if (layout.shape()[static_cast<std::size_t>(dim)] > 0) {
        EXPECT_TRUE(layout.select(dim, -1).is_valid());
      }
    }
    EXPECT_TRUE(layout.reshape(layout.shape()).is_valid());
  }
}

}  // namespace
}  // namespace drover::tensor
