// ipc/ledger/size_classes.hpp: the classes into which free extents are sorted by their length.
#pragma once

#include <bit>
#include <cstdint>

namespace drover {

inline constexpr unsigned kSizeBits = 24;
inline constexpr std::uint32_t kMaxSize = (1U << kSizeBits) - 1;
inline constexpr unsigned kSizeColumnBits = 5;
inline constexpr std::uint32_t kSizeColumns = 1U << kSizeColumnBits;
inline constexpr std::uint32_t kSizeRows = kSizeBits - kSizeColumnBits + 1;

/// One class: a row for each power of two, cut into 32 columns. Row 0 holds the sizes below 32, so up to 64 every
/// size has a class of its own, and above it a class spans at most 1/32 of its sizes.
struct SizeClass {
  std::uint32_t row = 0;     ///< below kSizeRows, except where `class_at_least` finds none
  std::uint32_t column = 0;  ///< below kSizeColumns

  friend bool operator==(const SizeClass&, const SizeClass&) = default;
};

/// The class that holds `size`. Requires: 1 to kMaxSize.
[[nodiscard]] constexpr SizeClass class_of(std::uint32_t size) noexcept {
  if (size < kSizeColumns) return {.row = 0, .column = size};
  const auto power = static_cast<std::uint32_t>(std::bit_width(size)) - 1;
  return {.row = power - kSizeColumnBits + 1, .column = (size >> (power - kSizeColumnBits)) - kSizeColumns};
}

/// The smallest size in a class.
[[nodiscard]] constexpr std::uint32_t smallest_in(SizeClass size_class) noexcept {
  if (size_class.row == 0) return size_class.column;
  return (kSizeColumns + size_class.column) << (size_class.row - 1);
}

/// The first class of which every size is at least `size`; its row is kSizeRows if there is none.
[[nodiscard]] constexpr SizeClass class_at_least(std::uint32_t size) noexcept {
  if (size < kSizeColumns) return class_of(size);
  const auto power = static_cast<std::uint32_t>(std::bit_width(size)) - 1;
  return class_of(size + (1U << (power - kSizeColumnBits)) - 1);
}

}  // namespace drover
