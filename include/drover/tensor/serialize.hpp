// drover/tensor/serialize.hpp: arrays as bytes, for what must be bytes: files, sockets, messages to other languages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "drover/tensor/tensor_layout.hpp"

namespace drover {

/// The version of the form that is written. Readers refuse newer ones.
inline constexpr std::uint32_t kSerializeVersion = 1;
/// Each array's data begin at a multiple of this, counted from the first byte.
inline constexpr std::size_t kSerializeAlignment = 64;
/// The most arrays that are written together.
inline constexpr std::size_t kMostSerializedArrays = 16'384;
/// The most bytes of a name.
inline constexpr std::size_t kMostSerializedName = 255;

/// An array to be written, or one that was read. Does not own its memory.
struct NamedArray {
  std::string name;     ///< differs from those written with it; empty for a single array that needs none
  TensorLayout layout;  ///< where the elements lie in `memory`
  std::span<const std::byte> memory;  ///< host memory
};

/// The bytes that `serialize` will write. Throws as it does.
[[nodiscard]] std::size_t serialized_bytes(std::span<const NamedArray> arrays);

/// Writes arrays to the beginning of `to`, such as a block that others map, and returns how many bytes that took.
/// Elements that do not lie row after row are put so on the way, without another copy. The same arrays give the same
/// bytes:
///
///     8 bytes     "\x89" "DROVER" "\n"
///     4 bytes     the version, little-endian
///     4 bytes     the length of the header, little-endian
///     header      in MessagePack: {"order": "little", "alignment": 64, "arrays": [{"name": "weights",
///                 "dtype": "float32", "shape": [2, 3], "offset": 0, "bytes": 24}, ...]}
///     zeros       up to a multiple of 64: the data begin here, and offsets are counted from here
///     data        of each array row after row, with zeros between them up to the next multiple of 64
///
/// Throws `Errc::invalid_argument` if a layout reaches outside its memory, two names are equal, a limit above is
/// passed, or `to` is too small. Requires: `to` does not overlap what is written.
std::size_t serialize(std::span<std::byte> to, std::span<const NamedArray> arrays);

/// The same in memory of its own; `Errc::out_of_memory` if there is not enough.
[[nodiscard]] std::vector<std::byte> serialize(std::span<const NamedArray> arrays);

/// Reads what `serialize` wrote. Nothing is copied: each array's memory is a part of `bytes`, of exactly the size of
/// its elements, which lie row after row. They are aligned to 64 bytes if `bytes` are. What lies behind the data is
/// let be. Nothing in the bytes is trusted: `Errc::corrupt` if they do not have the form or are cut off,
/// `Errc::unsupported` for a newer version and big-endian numbers.
[[nodiscard]] std::vector<NamedArray> parse_serialized(std::span<const std::byte> bytes);

}  // namespace drover
