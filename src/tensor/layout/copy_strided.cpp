#include "tensor/layout/copy_strided.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover {
namespace {

// The current position in both memories.
struct CopyPosition {
  std::byte* to;
  const std::byte* from;
};

// Copies element by element; a constant size compiles to a register move.
template <std::size_t Size>
void copy_row(CopyPosition at, const tensor::SharedDim& row) noexcept {
  const auto to_stride = row.strides[0] * static_cast<std::int64_t>(Size);
  const auto from_stride = row.strides[1] * static_cast<std::int64_t>(Size);
  for (std::int64_t i = 0; i < row.size; ++i) {
    std::memcpy(at.to + i * to_stride, at.from + i * from_stride, Size);
  }
}

using CopyRow = void (*)(CopyPosition, const tensor::SharedDim&) noexcept;

CopyRow row_copy_for(std::size_t element_size) noexcept {
  switch (element_size) {
    case 1: return copy_row<1>;
    case 2: return copy_row<2>;
    case 4: return copy_row<4>;
    case 8: return copy_row<8>;
    default: return copy_row<16>;
  }
}

// The innermost dimension is copied as a row; an odometer of counts steps through the outer ones.
void copy_dims(CopyPosition at, const std::vector<tensor::SharedDim>& dims, std::size_t element_size) {
  const tensor::SharedDim& row = dims.back();
  const bool is_dense = row.strides[0] == 1 && row.strides[1] == 1;
  const CopyRow copy = row_copy_for(element_size);
  const auto size = static_cast<std::int64_t>(element_size);
  std::vector<std::int64_t> counts(dims.size() - 1, 0);
  for (;;) {
    if (is_dense) {
      std::memcpy(at.to, at.from, static_cast<std::size_t>(row.size) * element_size);
    } else {
      copy(at, row);
    }
    std::size_t dim = counts.size();
    for (; dim > 0; --dim) {
      const tensor::SharedDim& outer = dims[dim - 1];
      const bool is_last = ++counts[dim - 1] == outer.size;
      const std::int64_t steps = is_last ? 1 - outer.size : 1;
      if (is_last) counts[dim - 1] = 0;
      at.to += steps * outer.strides[0] * size;
      at.from += steps * outer.strides[1] * size;
      if (!is_last) break;
    }
    if (dim == 0) return;
  }
}

std::vector<tensor::SharedDim> coalesced(const std::vector<tensor::SharedDim>& dims) {
  std::vector<tensor::SharedDim> result;
  for (const tensor::SharedDim& dim : dims) {
    if (dim.size == 1) continue;
    // One step of the outer dimension must equal all steps of the inner one.
    const auto follows = [&](std::size_t k) { return result.back().strides.at(k) == dim.strides.at(k) * dim.size; };
    if (!result.empty() && follows(0) && follows(1)) {
      result.back() = {.size = result.back().size * dim.size, .strides = dim.strides};
    } else {
      result.push_back(dim);
    }
  }
  return result;
}

}  // namespace

std::vector<tensor::SharedDim> tensor::coalesced_dims(const TensorLayout& first, const TensorLayout& second) {
  std::vector<tensor::SharedDim> dims;
  for (std::size_t i = 0; i < first.shape().size(); ++i) {
    dims.push_back({.size = first.shape()[i], .strides = {first.strides()[i], second.strides()[i]}});
  }
  return coalesced(dims);
}

std::vector<tensor::SharedDim> tensor::coalesced_dims_in_any_order(const TensorLayout& to, const TensorLayout& from) {
  auto dims = tensor::coalesced_dims(to, from);
  std::ranges::sort(dims,
                    [](const tensor::SharedDim& a, const tensor::SharedDim& b) { return a.strides > b.strides; });
  return coalesced(dims);
}

void tensor::check_memory(const TensorLayout& layout, std::size_t memory_bytes) {
  require(layout.is_valid(), "the layout of a tensor is not valid",
          "make layouts with TensorLayout::contiguous or strided, and check is_valid of those from elsewhere");
  const auto extent = layout.extent_bytes();
  if (extent.end > memory_bytes) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} spans bytes {} to {} of a memory of {} bytes", to_string(layout), extent.begin,
                            extent.end, memory_bytes),
                "pass the whole memory that the layout describes");
  }
}

void tensor::check_copy(const TensorLayout& to, const TensorLayout& from) {
  if (to.dtype() != from.dtype() || !std::ranges::equal(to.shape(), from.shape())) {
    throw Error(Errc::invalid_argument, fmt::format("{} cannot be copied to {}", to_string(from), to_string(to)),
                "give both the same type and shape");
  }
  for (std::size_t i = 0; i < to.shape().size(); ++i) {
    if (to.strides()[i] == 0 && to.shape()[i] > 1) {
      throw Error(Errc::invalid_argument,
                  fmt::format("{} cannot be copied to {}, which has one place for the {} elements of dimension {}",
                              to_string(from), to_string(to), to.shape()[i], i),
                  "copy to the tensor that was expanded, not to the result of expand");
    }
  }
}

void copy_strided(std::span<std::byte> to, const TensorLayout& to_layout, std::span<const std::byte> from,
                  const TensorLayout& from_layout) {
  tensor::check_memory(to_layout, to.size());
  tensor::check_memory(from_layout, from.size());
  tensor::check_copy(to_layout, from_layout);
  if (to_layout.element_count() == 0) return;
  auto dims = tensor::coalesced_dims_in_any_order(to_layout, from_layout);
  if (dims.empty()) dims.push_back({.size = 1, .strides = {1, 1}});
  const CopyPosition start = {.to = to.data() + to_layout.extent_bytes().begin,
                              .from = from.data() + from_layout.extent_bytes().begin};
  copy_dims(start, dims, size_of(to_layout.dtype()));
}

}  // namespace drover
