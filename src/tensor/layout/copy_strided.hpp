// tensor/layout/copy_strided.hpp: what copies between strided layouts share; private.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "drover/tensor/tensor_layout.hpp"

namespace drover::tensor {

/// A dimension that two layouts have in common: `size` elements, `strides[k]` elements apart in layout k.
struct SharedDim {
  std::int64_t size;
  std::array<std::int64_t, 2> strides;
};

/// The fewest dimensions, outermost first, that describe where the elements of two layouts of one shape lie. Keeps
/// the order of the elements; drops dimensions of size 1.
[[nodiscard]] std::vector<SharedDim> coalesced_dims(const TensorLayout& first, const TensorLayout& second);

/// Same as above, but sorted by stride: the fewest dimensions for a copy, which may visit the elements in any order.
[[nodiscard]] std::vector<SharedDim> coalesced_dims_in_any_order(const TensorLayout& to, const TensorLayout& from);

/// Throws `Errc::invalid_argument` unless the layout is valid (it may have come as bytes from elsewhere) and every
/// element lies within `memory_bytes`.
void check_memory(const TensorLayout& layout, std::size_t memory_bytes);

/// Throws `Errc::invalid_argument` unless elements of `from` can be copied to those of `to`: same type and shape, and
/// a place for each.
void check_copy(const TensorLayout& to, const TensorLayout& from);

}  // namespace drover::tensor
