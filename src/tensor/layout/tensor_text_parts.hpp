// tensor/layout/tensor_text_parts.hpp: format_tensor for elements that are not in host memory; private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "drover/tensor/tensor_text.hpp"

namespace drover::detail {

/// Writes the element at `place`, counted in elements from the start of the memory, to host memory.
using FetchElement = std::function<void(std::int64_t place, std::byte* to)>;

/// As format_tensor; only what is shown is fetched. Requires: a valid layout, which fits its memory.
[[nodiscard]] std::string format_fetched(const TensorLayout& layout, const FetchElement& fetch,
                                         const TensorTextOptions& options);

}  // namespace drover::detail
