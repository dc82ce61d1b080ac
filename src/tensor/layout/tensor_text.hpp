// tensor/layout/tensor_text.hpp: format_tensor for elements that are not in host memory; private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "drover/tensor/tensor_layout.hpp"

namespace drover::tensor {

/// Copies the element at `place`, counted in elements from the start of the memory, to `to` in host memory.
using FetchElement = std::function<void(std::int64_t place, std::byte* to)>;

/// Like format_tensor, but fetches the shown elements one by one. Requires: a valid layout that fits its memory.
[[nodiscard]] std::string format_fetched(const TensorLayout& layout, const FetchElement& fetch,
                                         const TensorTextOptions& options);

}  // namespace drover::tensor
