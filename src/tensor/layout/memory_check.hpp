// tensor/layout/memory_check.hpp: whether a layout fits its memory; private.
#pragma once

#include <cstddef>

#include "drover/tensor/tensor_layout.hpp"

namespace drover::detail {

/// Throws `Errc::invalid_argument` unless every element lies within `memory_bytes`, and the layout is valid: it may
/// have come as bytes from elsewhere.
void check_memory(const TensorLayout& layout, std::size_t memory_bytes);

/// Throws `Errc::invalid_argument` unless elements of `from` can be copied to those of `to`: same type and shape, and
/// a place for each.
void check_copy(const TensorLayout& to, const TensorLayout& from);

}  // namespace drover::detail
