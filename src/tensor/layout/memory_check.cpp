#include "tensor/layout/memory_check.hpp"

#include <algorithm>

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

void check_copy(const TensorLayout& to, const TensorLayout& from) {
  if (to.dtype() != from.dtype() || !std::ranges::equal(to.shape(), from.shape())) {
    throw Error(Errc::invalid_argument, fmt::format("{} cannot be copied to {}", to_string(from), to_string(to)),
                "give both the same type and shape");
  }
  for (std::size_t i = 0; i < to.shape().size(); ++i) {
    if (to.strides()[i] == 0 && to.shape()[i] > 1) {
      throw Error(Errc::invalid_argument,
                  fmt::format("{} cannot be copied to {}, which has one place for the {} elements of dimension {}",
                              to_string(from), to_string(to), to.shape()[i], i),
                  "copy to the tensor that was expanded, not to what expand gave");
    }
  }
}

}  // namespace drover::detail
