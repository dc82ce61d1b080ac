// tensor/exchange/npy_format.hpp: headers of .npy files without their data; private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "drover/tensor/npy.hpp"

namespace drover::detail {

/// Bytes from the start of a file that surely hold its whole header, where it has one that is read.
inline constexpr std::size_t kMostNpyHeaderBytes = 12 + 65536;

/// As `parse_npy`, from the beginning of a file of `file_bytes`: all of it, or `kMostNpyHeaderBytes`.
[[nodiscard]] NpyHeader parse_npy_beginning(std::span<const std::byte> beginning, std::uint64_t file_bytes);

}  // namespace drover::detail
