// drover/base/bytes.hpp: sizes in bytes, to and from text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// Binary units.
inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;  ///< 2^20
inline constexpr std::uint64_t kGiB = 1024 * kMiB;  ///< 2^30

/// Human-readable: "64.0 MiB", "512 B".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// Parses "4096", "64MiB", "1.5 GiB", "2G" (K, M, G, T are binary, in either case). nullopt if the text is anything
/// else, negative, or too large for 64 bits.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace drover
