// drover/tensor/tensor_text.hpp: the elements of a tensor, for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "drover/tensor/tensor_layout.hpp"

namespace drover {

/// How `format_tensor` writes.
struct TensorTextOptions {
  int decimals = 4;                   ///< behind the point, where not all numbers are whole; 0 to 17
  std::int64_t most_elements = 1000;  ///< tensors with more are shown in part; a million at most
  int edge_elements = 3;  ///< then so many are shown at either end of each dimension; fewer if they are many
  int line_width = 80;    ///< rows that are longer go on in the next line
};

/// The elements in nested brackets and aligned columns, then a line with type and shape:
///
///     [[1.0000, 2.5000],
///      [3.0000,    nan]]
///     float32[2, 2]
///
/// Numbers that are all whole have no decimals; very large or small ones get an exponent. Of a tensor with many
/// elements the first and last are shown, with ... between them, and only what is shown is read.
/// Throws `Errc::invalid_argument` if the layout reaches outside `memory` or the options cannot be followed.
[[nodiscard]] std::string format_tensor(const TensorLayout& layout, std::span<const std::byte> memory,
                                        const TensorTextOptions& options = {});

}  // namespace drover
