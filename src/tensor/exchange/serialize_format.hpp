// tensor/exchange/serialize_format.hpp: the form of serialized arrays, as writer and reader agree on it; private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "drover/tensor/serialize.hpp"

namespace drover::detail {

inline constexpr std::string_view kSerializeMagic =
    "\x89"
    "DROVER\n";
/// Bytes before the header: magic, version, length of the header.
inline constexpr std::size_t kSerializeFrame = 16;
/// The longest header that the limits allow, with what MessagePack adds.
inline constexpr std::size_t kMostSerializedHeader = 64 + kMostSerializedArrays * (kMostSerializedName + 192);
/// Data of all arrays together end before this, so that nothing computed from it overflows.
inline constexpr std::uint64_t kMostSerializedBytes = std::uint64_t{1} << 62U;

/// The next multiple of the alignment. Requires: at most `kMostSerializedBytes`.
[[nodiscard]] constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + kSerializeAlignment - 1) / kSerializeAlignment * kSerializeAlignment;
}

namespace key {
inline constexpr std::string_view kOrder = "order";
inline constexpr std::string_view kAlignment = "alignment";
inline constexpr std::string_view kArrays = "arrays";
inline constexpr std::string_view kName = "name";
inline constexpr std::string_view kDType = "dtype";
inline constexpr std::string_view kShape = "shape";
inline constexpr std::string_view kOffset = "offset";
inline constexpr std::string_view kBytes = "bytes";
}  // namespace key

inline constexpr std::string_view kLittle = "little";

}  // namespace drover::detail
