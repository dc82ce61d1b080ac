// drover/tensor/serialize.hpp: arrays as bytes, for files, sockets, and messages to other languages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "drover/tensor/tensor_layout.hpp"

namespace drover {

/// The format version that is written. Readers reject newer ones.
inline constexpr std::uint32_t kSerializeVersion = 1;
/// The alignment of each array's data, relative to the first byte.
inline constexpr std::size_t kSerializeAlignment = 64;
/// The most arrays that are written together.
inline constexpr std::size_t kMostSerializedArrays = 16'384;
/// The most bytes of a name.
inline constexpr std::size_t kMostSerializedName = 255;

/// An array to be written, or one that was read. Does not own its memory.
struct NamedArray {
  std::string name;                   ///< unique among the arrays; may be empty
  TensorLayout layout;                ///< where the elements lie in `memory`
  std::span<const std::byte> memory;  ///< host memory
};

/// The bytes that `serialize` will write. Throws as it does.
[[nodiscard]] std::size_t serialized_bytes(std::span<const NamedArray> arrays);

/// Writes arrays to the beginning of `to`, e.g. a shared block, and returns the number of bytes written. Puts
/// elements into row-major order, without another copy. The same arrays give the same bytes:
///
///     8 bytes     "\x89" "DROVER" "\n"
///     4 bytes     the version, little-endian
///     4 bytes     the length of the header, little-endian
///     header      in MessagePack: {"order": "little", "alignment": 64, "arrays": [{"name": "weights",
///                 "dtype": "float32", "shape": [2, 3], "offset": 0, "bytes": 24}, ...]}
///     zeros       up to a multiple of 64, where the data begin and from which offsets are counted
///     data        of each array in row-major order, padded with zeros to a multiple of 64
///
/// Throws `Errc::invalid_argument` if a layout exceeds its memory, two names are equal, a limit above is exceeded, or
/// `to` is too small. Requires: `to` does not overlap the arrays.
std::size_t serialize(std::span<std::byte> to, std::span<const NamedArray> arrays);

/// The same, to new memory. Throws `Errc::out_of_memory` if there is not enough.
[[nodiscard]] std::vector<std::byte> serialize(std::span<const NamedArray> arrays);

/// Reads what `serialize` wrote, without a copy: each array's memory is a part of `bytes` and contiguous, and aligned
/// to 64 bytes if `bytes` is. Ignores bytes after the data. Trusts nothing in the bytes: throws `Errc::corrupt` if
/// they are malformed or truncated, `Errc::unsupported` for a newer version and big-endian numbers.
[[nodiscard]] std::vector<NamedArray> parse_serialized(std::span<const std::byte> bytes);

}  // namespace drover
