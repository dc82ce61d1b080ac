// ipc/ledger/size_classes.hpp: the classes by which free extents are listed according to their length.
#pragma once

#include <bit>
#include <cstdint>

namespace drover::ipc {

inline constexpr unsigned kSizeBits = 24;
inline constexpr std::uint32_t kMaxSize = (1U << kSizeBits) - 1;
inline constexpr unsigned kSizeColumnBits = 5;
inline constexpr std::uint32_t kSizeColumns = 1U << kSizeColumnBits;
inline constexpr std::uint32_t kSizeRows = kSizeBits - kSizeColumnBits + 1;

/// One class: a row per power of two, divided into 32 columns. Row 0 holds the sizes below 32, so each size up to 64
/// has its own class, and a class above spans at most 1/32 of its sizes.
struct SizeClass {
  std::uint32_t row = 0;     ///< below kSizeRows, unless `class_at_least` finds none
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

/// The first class whose sizes are all at least `size`; its row is kSizeRows if there is none.
[[nodiscard]] constexpr SizeClass class_at_least(std::uint32_t size) noexcept {
  if (size < kSizeColumns) return class_of(size);
  const auto power = static_cast<std::uint32_t>(std::bit_width(size)) - 1;
  return class_of(size + (1U << (power - kSizeColumnBits)) - 1);
}

}  // namespace drover::ipc
