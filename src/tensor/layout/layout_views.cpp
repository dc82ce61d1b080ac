// Views: layouts of the same memory.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "drover/tensor/tensor_layout.hpp"

namespace drover {
namespace {

constexpr int kMostParts = 1'000'000;

// Where a slice begins or ends in a dimension of `size`, as Python cuts it.
std::int64_t cut(std::int64_t index, std::int64_t size) noexcept {
  if (index < 0) index = index < -size ? 0 : index + size;
  return std::min(index, size);
}

}  // namespace

std::size_t TensorLayout::dimension(int dim, const char* what) const {
  if (dim < -rank() || dim >= rank()) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} was asked for dimension {} of {}, which has {}", what, dim, to_string(*this), rank()),
                rank() == 0 ? "use a tensor that has dimensions"
                            : fmt::format("give a dimension from {} to {}", -rank(), rank() - 1));
  }
  return static_cast<std::size_t>(dim < 0 ? dim + rank() : dim);
}

TensorLayout TensorLayout::without(std::size_t dim) const noexcept {
  TensorLayout view = *this;
  const auto remove = [&](auto& numbers) {
    std::copy(numbers.begin() + dim + 1, numbers.end(), numbers.begin() + dim);
    numbers.back() = 0;
  };
  remove(view.shape_);
  remove(view.strides_);
  --view.rank_;
  return view;
}

TensorLayout TensorLayout::select(int dim, std::int64_t index) const {
  const std::size_t at = dimension(dim, "select");
  const std::int64_t size = shape_.at(at);
  if (index < -size || index >= size) {
    throw Error(Errc::invalid_argument,
                fmt::format("index {} was selected of dimension {} of {}, whose size is {}", index, dim,
                            to_string(*this), size),
                size == 0 ? "an empty dimension has no elements to select"
                          : fmt::format("give an index from {} to {}", -size, size - 1));
  }
  TensorLayout view = without(at);
  view.offset_ += (index < 0 ? index + size : index) * strides_.at(at);
  return view;
}

TensorLayout TensorLayout::slice(int dim, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  const std::size_t at = dimension(dim, "slice");
  const std::int64_t size = shape_.at(at);
  if (step <= 0) {
    throw Error(Errc::invalid_argument,
                fmt::format("a slice of dimension {} of {}, whose size is {}, was asked for with step {}", dim,
                            to_string(*this), size, step),
                "give a step of 1 or more; elements cannot be walked backwards");
  }
  const std::int64_t first = cut(begin, size);
  const std::int64_t length = std::max<std::int64_t>(cut(end, size) - first, 0);
  TensorLayout view = *this;
  view.shape_.at(at) = length / step + (length % step != 0 ? 1 : 0);
  // What is not walked stays as it is, so that nothing here can grow beyond what the layout spans.
  if (length > 0) view.offset_ += first * strides_.at(at);
  if (view.shape_.at(at) > 1) view.strides_.at(at) *= step;
  return view;
}

TensorLayout TensorLayout::permute(const Dims& order) const {
  TensorLayout view = *this;
  std::array<bool, kMaxRank> is_used{};
  bool is_order = order.size() == rank_;
  for (std::size_t i = 0; is_order && i < rank_; ++i) {
    const std::int64_t asked = order.numbers()[i];
    is_order = asked >= -rank() && asked < rank();
    if (!is_order) break;
    const auto from = static_cast<std::size_t>(asked < 0 ? asked + rank() : asked);
    is_order = !std::exchange(is_used.at(from), true);
    view.shape_.at(i) = shape_.at(from);
    view.strides_.at(i) = strides_.at(from);
  }
  if (!is_order) {
    throw Error(Errc::invalid_argument,
                fmt::format("[{}] is no order of the {} dimensions of {}", fmt::join(order.numbers(), ", "), rank(),
                            to_string(*this)),
                "name each dimension once");
  }
  return view;
}

TensorLayout TensorLayout::transpose(int a, int b) const {
  const std::size_t first = dimension(a, "transpose");
  const std::size_t second = dimension(b, "transpose");
  TensorLayout view = *this;
  std::swap(view.shape_.at(first), view.shape_.at(second));
  std::swap(view.strides_.at(first), view.strides_.at(second));
  return view;
}

TensorLayout TensorLayout::unsqueeze(int dim) const {
  if (rank() == kMaxRank || dim < -rank() - 1 || dim > rank()) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("unsqueeze was asked for a new dimension {} of {}, which has {}", dim, to_string(*this), rank()),
        rank() == kMaxRank ? fmt::format("a tensor has {} dimensions at most", kMaxRank)
                           : fmt::format("give a place from {} to {}", -rank() - 1, rank()));
  }
  const auto at = static_cast<std::size_t>(dim < 0 ? dim + rank() + 1 : dim);
  TensorLayout view = *this;
  const auto insert = [&](auto& numbers) {
    std::copy_backward(numbers.begin() + at, numbers.end() - 1, numbers.end());
    numbers.at(at) = 1;
  };
  insert(view.shape_);
  insert(view.strides_);
  ++view.rank_;
  return view;
}

TensorLayout TensorLayout::squeeze(int dim) const {
  const std::size_t at = dimension(dim, "squeeze");
  if (shape_.at(at) != 1) {
    throw Error(Errc::invalid_argument,
                fmt::format("squeeze was asked for dimension {} of {}, whose size is {}", dim, to_string(*this),
                            shape_.at(at)),
                "squeeze dimensions of size 1 only; select gives one index of others");
  }
  return without(at);
}

TensorLayout TensorLayout::expand(const Dims& shape) const {
  TensorLayout view = *this;
  view.rank_ = static_cast<std::uint8_t>(shape.size());
  view.shape_ = {};
  view.strides_ = {};
  std::ranges::copy(shape.numbers(), view.shape_.begin());
  for (std::size_t back = 1; back <= rank_; ++back) {
    const std::size_t old = rank_ - back;
    const bool has_place = back <= shape.size();
    const std::int64_t asked = has_place ? shape.numbers()[shape.size() - back] : 0;
    if (!has_place || (asked != shape_.at(old) && shape_.at(old) != 1)) {
      throw Error(Errc::invalid_argument,
                  fmt::format("{} was to be expanded to [{}], but its dimension {} has size {}", to_string(*this),
                              fmt::join(shape.numbers(), ", "), old, shape_.at(old)),
                  "give as many sizes or more, the last ones equal to its own wherever that is not 1");
    }
    if (asked == shape_.at(old)) view.strides_.at(shape.size() - back) = strides_.at(old);
  }
  return view.checked();
}

std::vector<TensorLayout> TensorLayout::split(int parts, int dim) const {
  const std::size_t at = dimension(dim, "split");
  const std::int64_t size = shape_.at(at);
  if (parts < 1 || parts > kMostParts) {
    throw Error(Errc::invalid_argument,
                fmt::format("dimension {} of {}, whose size is {}, was to be split in {} parts", dim,
                            to_string(*this), size, parts),
                fmt::format("give 1 to {} parts", kMostParts));
  }
  std::vector<TensorLayout> views;
  views.reserve(static_cast<std::size_t>(parts));
  std::int64_t begin = 0;
  for (int i = 0; i < parts; ++i) {
    const std::int64_t end = begin + size / parts + (i < size % parts ? 1 : 0);
    views.push_back(slice(dim, begin, end));
    begin = end;
  }
  return views;
}

}  // namespace drover
