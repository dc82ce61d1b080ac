// drover/tensor/half.hpp: floating-point numbers of 16 bits.
#pragma once

#include <bit>
#include <cstdint>

namespace drover {

namespace detail {

/// `number` / 2^`shift`, to the nearest, halves to the even one. Requires: 0 < shift < 32.
[[nodiscard]] constexpr std::uint32_t shifted_to_even(std::uint32_t number, std::uint32_t shift) noexcept {
  const std::uint32_t result = number >> shift;
  const std::uint32_t rest = number & ((1U << shift) - 1);
  const std::uint32_t half = 1U << (shift - 1);
  return result + (rest > half || (rest == half && (result & 1U) != 0) ? 1U : 0U);
}

/// The bits of the float16 nearest to a float.
[[nodiscard]] constexpr std::uint16_t to_float16_bits(float value) noexcept {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kTooLarge = 0x47800000;     // 2^16; what lies just below rounds up by itself
  constexpr std::uint32_t kLeastNormal = 0x38800000;  // 2^-14
  constexpr std::uint32_t kLessBias = (127U - 15) << 23U;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t result = 0x7c00;
  if (magnitude > kInfinity) {
    // What fits of the payload stays; without it this would be an infinity.
    const std::uint32_t payload = (magnitude >> 13U) & 0x3ffU;
    result |= payload == 0 ? 0x200U : payload;
  } else if (magnitude < kLeastNormal) {
    const std::uint32_t shift = 126U - (magnitude >> 23U);
    result = shift > 24 ? 0 : shifted_to_even((magnitude & 0x7fffffU) | 0x800000U, shift);
  } else if (magnitude < kTooLarge) {
    result = shifted_to_even(magnitude - kLessBias, 13);
  }
  return static_cast<std::uint16_t>(sign | result);
}

/// The float that is a float16; exact.
[[nodiscard]] constexpr float from_float16_bits(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  std::uint32_t result = ((exponent + 112U) << 23U) | (fraction << 13U);
  if (exponent == 0x1f) result = 0x7f800000U | (fraction << 13U);
  if (exponent == 0) result = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
  return std::bit_cast<float>(sign | result);
}

/// The bits of the bfloat16 nearest to a float.
[[nodiscard]] constexpr std::uint16_t to_bfloat16_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    const std::uint32_t upper = bits >> 16U;
    return static_cast<std::uint16_t>((upper & 0x7fU) == 0 ? upper | 0x40U : upper);
  }
  return static_cast<std::uint16_t>(shifted_to_even(bits, 16));
}

}  // namespace detail

/// A float of 16 bits as IEEE 754 has it: 5 bits of exponent, 10 of fraction. For storage: compute in float.
class Float16 {
 public:
  /// Zero.
  constexpr Float16() noexcept = default;
  /// The nearest, halves to the even one; beyond 65504 infinite, NaN stays NaN.
  constexpr explicit Float16(float value) noexcept : bits_(detail::to_float16_bits(value)) {}
  /// The one with these bits.
  [[nodiscard]] static constexpr Float16 from_bits(std::uint16_t bits) noexcept {
    Float16 made;
    made.bits_ = bits;
    return made;
  }
  /// Its value; exact.
  constexpr explicit operator float() const noexcept { return detail::from_float16_bits(bits_); }
  /// As it is stored.
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }
  /// As numbers: NaN equals nothing, both zeros are equal.
  friend constexpr bool operator==(Float16 left, Float16 right) noexcept {
    return static_cast<float>(left) == static_cast<float>(right);
  }

 private:
  std::uint16_t bits_ = 0;
};

/// The upper half of a float: its range, with 7 bits of fraction. For storage: compute in float.
class BFloat16 {
 public:
  /// Zero.
  constexpr BFloat16() noexcept = default;
  /// The nearest, halves to the even one; NaN stays NaN.
  constexpr explicit BFloat16(float value) noexcept : bits_(detail::to_bfloat16_bits(value)) {}
  /// The one with these bits.
  [[nodiscard]] static constexpr BFloat16 from_bits(std::uint16_t bits) noexcept {
    BFloat16 made;
    made.bits_ = bits;
    return made;
  }
  /// Its value; exact.
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16U);
  }
  /// As it is stored.
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }
  /// As numbers: NaN equals nothing, both zeros are equal.
  friend constexpr bool operator==(BFloat16 left, BFloat16 right) noexcept {
    return static_cast<float>(left) == static_cast<float>(right);
  }

 private:
  std::uint16_t bits_ = 0;
};

}  // namespace drover
