// reshape: the one view that may not exist.
#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "drover/tensor/tensor_layout.hpp"
#include "tensor/layout/runs.hpp"

namespace drover {
namespace {

[[noreturn]] void throw_shape(const TensorLayout& layout, const Dims& shape, const std::string& why,
                              const std::string& remedy) {
  throw Error(
      Errc::invalid_argument,
      fmt::format("{} cannot be reshaped to [{}]: {}", to_string(layout), fmt::join(shape.numbers(), ", "), why),
      remedy);
}

// The product of sizes; -1 where it does not fit.
std::int64_t product(std::span<const std::int64_t> sizes) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return 0;
  std::int64_t result = 1;
  for (const auto size : sizes) {
    if (__builtin_mul_overflow(result, size, &result)) return -1;
  }
  return result;
}

// `shape` with what is left in the place of -1.
std::vector<std::int64_t> whole_shape(const TensorLayout& layout, const Dims& shape) {
  const std::int64_t count = layout.element_count();
  std::vector<std::int64_t> sizes(shape.numbers().begin(), shape.numbers().end());
  const auto open = std::ranges::find(sizes, -1);
  if (std::ranges::any_of(sizes, [](auto size) { return size < -1; }) || std::ranges::count(sizes, -1) > 1) {
    throw_shape(layout, shape, "sizes are 0 or more", "write -1 once at most, for what is left");
  }
  if (open != sizes.end()) {
    *open = 1;
    const std::int64_t others = product(sizes);
    if (others <= 0 || count % others != 0) {
      throw_shape(layout, shape, fmt::format("the other sizes do not divide its {} elements", count),
                  "give sizes whose product divides the number of elements");
    }
    *open = count / others;
  }
  if (product(sizes) != count) {
    throw_shape(layout, shape, fmt::format("it has {} elements", count),
                "give a shape with as many elements, or -1 for one size");
  }
  return sizes;
}

// Strides for `sizes`, from the innermost outwards: each takes its elements off the innermost run that has some left.
// A size that would reach over the border of two runs cannot be walked by one stride.
std::optional<std::vector<std::int64_t>> strides_for(const TensorLayout& layout,
                                                     std::span<const std::int64_t> sizes) {
  auto runs = detail::joined_runs(layout, layout);
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (runs.empty() || runs.back().size % sizes[i] != 0) return std::nullopt;
    detail::Run& run = runs.back();
    strides[i] = run.ways[0];
    run.size /= sizes[i];
    if (run.size == 1) {
      runs.pop_back();
    } else {
      run.ways[0] *= sizes[i];
    }
  }
  return strides;
}

}  // namespace

TensorLayout TensorLayout::reshape(const Dims& shape) const {
  const auto sizes = whole_shape(*this, shape);
  if (is_contiguous()) {
    TensorLayout view = contiguous(dtype_, sizes);
    view.offset_ = offset_;
    return view.checked();
  }
  const auto strides = strides_for(*this, sizes);
  if (!strides) {
    throw_shape(*this, shape, "its elements do not lie so that strides could say it",
                "make it contiguous first: copy it to a contiguous layout of its shape");
  }
  return strided(dtype_, sizes, *strides, offset_);
}

}  // namespace drover
