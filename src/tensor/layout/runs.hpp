// tensor/layout/runs.hpp: dimensions that can be walked as one; private.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "drover/tensor/tensor_layout.hpp"

namespace drover::detail {

/// `size` elements that lie `ways[k]` elements apart in layout k.
struct Run {
  std::int64_t size;
  std::array<std::int64_t, 2> ways;
};

/// The fewest dimensions, outermost first, that say where the elements of two layouts of one shape lie. The order of
/// elements stays. Dimensions of size 1 are gone.
[[nodiscard]] std::vector<Run> joined_runs(const TensorLayout& first, const TensorLayout& second);

/// Joins neighbours where both ways allow it.
[[nodiscard]] std::vector<Run> joined(const std::vector<Run>& runs);

}  // namespace drover::detail
