// tensor/layout/element_text.hpp: elements as text, all in one style; private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "drover/tensor/dtype.hpp"

namespace drover::detail {

/// The text of the elements that lie at `places` (in elements) of `memory`, of equal width: right-aligned.
/// Requires: they lie within the memory.
[[nodiscard]] std::vector<std::string> element_texts(DType dtype, std::span<const std::byte> memory,
                                                     std::span<const std::int64_t> places, int decimals);

}  // namespace drover::detail
