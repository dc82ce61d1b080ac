#include "tensor/memory_check.hpp"

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::detail {

void check_memory(const TensorLayout& layout, std::size_t memory_bytes) {
  require(layout.is_valid(), "a tensor's layout is not one that drover made",
          "make it by TensorLayout::contiguous or strided, and ask is_valid of what came from elsewhere");
  const auto extent = layout.extent_bytes();
  if (extent.end > memory_bytes) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} lies in bytes {} to {} of a memory that has {}", to_string(layout), extent.begin,
                            extent.end, memory_bytes),
                "give the whole memory that the layout is of");
  }
}

}  // namespace drover::detail
