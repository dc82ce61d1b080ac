// tensor/memory_check.hpp: whether a layout fits its memory; private.
#pragma once

#include <cstddef>

#include "drover/tensor/tensor_layout.hpp"

namespace drover::detail {

/// Throws `Errc::invalid_argument` unless every element lies within `memory_bytes`, and the layout is valid: it may
/// have come as bytes from elsewhere.
void check_memory(const TensorLayout& layout, std::size_t memory_bytes);

}  // namespace drover::detail
