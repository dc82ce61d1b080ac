// tests/tensor/layout/reference.hpp: a naive model of layouts, to compare with.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "drover/tensor/tensor_layout.hpp"

namespace drover::test {

/// A shape and, in row-major order, the place of every element. Views permute the places.
struct Places {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> at;
  bool operator==(const Places&) const = default;
};

/// Advances to the next index in row-major order; false after the last.
inline bool advance(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& shape) {
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    if (++index[dim] < shape[dim]) return true;
    index[dim] = 0;
  }
  return false;
}

/// Calls `visit` with every index in row-major order.
template <class Visit>
void for_each_index(const std::vector<std::int64_t>& shape, Visit visit) {
  for (const auto size : shape) {
    if (size == 0) return;
  }
  std::vector<std::int64_t> index(shape.size(), 0);
  do visit(index);
  while (advance(index, shape));
}

/// The position of an index in row-major order.
inline std::size_t row_number(const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& shape) {
  std::int64_t number = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) number = number * shape[dim] + index[dim];
  return static_cast<std::size_t>(number);
}

/// The places of a layout's elements, by definition.
inline Places places_of(const TensorLayout& layout) {
  Places places{.shape = {layout.shape().begin(), layout.shape().end()}, .at = {}};
  for_each_index(places.shape, [&](const std::vector<std::int64_t>& index) {
    std::int64_t place = layout.offset();
    for (std::size_t dim = 0; dim < index.size(); ++dim) place += index[dim] * layout.strides()[dim];
    places.at.push_back(place);
  });
  return places;
}

/// The view of `shape` whose element at each index is that of `old` at `source(index)`.
template <class Source>
Places view_of(const Places& old, const std::vector<std::int64_t>& shape, Source source) {
  Places view{.shape = shape, .at = {}};
  for_each_index(shape, [&](const std::vector<std::int64_t>& index) {
    view.at.push_back(old.at.at(row_number(source(index), old.shape)));
  });
  return view;
}

/// Deterministic, so that failures can be reproduced.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  /// A number from `least` to `most`.
  std::int64_t roll(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  /// A shape with few elements; some sizes are 0 or 1.
  std::vector<std::int64_t> shape(std::int64_t most_rank, std::int64_t most_size) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(roll(0, most_rank)));
    for (auto& size : sizes) size = roll(0, 19) == 0 ? 0 : roll(1, most_size);
    return sizes;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace drover::test
