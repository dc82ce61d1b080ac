// drover/tensor/dtype.hpp: types of elements, 16-bit floats, and one number of any type.
#pragma once

#include <array>
#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace drover {

namespace detail {

/// `number` / 2^`shift`, rounded to nearest, ties to even. Requires: 0 < shift < 32.
[[nodiscard]] constexpr std::uint32_t shifted_to_even(std::uint32_t number, std::uint32_t shift) noexcept {
  const std::uint32_t result = number >> shift;
  const std::uint32_t rest = number & ((1U << shift) - 1);
  const std::uint32_t half = 1U << (shift - 1);
  return result + (rest > half || (rest == half && (result & 1U) != 0) ? 1U : 0U);
}

/// The bits of the float16 nearest to a float.
[[nodiscard]] constexpr std::uint16_t to_float16_bits(float value) noexcept {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kTooLarge = 0x47800000;     // 2^16; values just below round up to infinity
  constexpr std::uint32_t kLeastNormal = 0x38800000;  // 2^-14
  constexpr std::uint32_t kLessBias = (127U - 15) << 23U;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t result = 0x7c00;
  if (magnitude > kInfinity) {
    // Keeps the upper bits of the payload, but not 0, which would be infinity.
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

/// The value of a float16; exact.
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

/// The 16-bit float of IEEE 754: 5 bits of exponent, 10 of fraction. For storage: compute in float.
class Float16 {
 public:
  /// Zero.
  constexpr Float16() noexcept = default;
  /// Rounds to nearest, ties to even; infinite beyond 65504; NaN stays NaN.
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
  /// Rounds to nearest, ties to even; NaN stays NaN.
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

/// The type of a tensor's elements. The numbers travel between processes and never change; 0 is not used, so that
/// zeroed memory is not a valid type.
enum class DType : std::uint8_t {
  boolean = 1,      ///< one byte, 0 or 1
  int8 = 2,         ///< signed, 1 byte
  int16 = 3,        ///< signed, 2 bytes
  int32 = 4,        ///< signed, 4 bytes
  int64 = 5,        ///< signed, 8 bytes
  uint8 = 6,        ///< unsigned, 1 byte
  uint16 = 7,       ///< unsigned, 2 bytes
  uint32 = 8,       ///< unsigned, 4 bytes
  uint64 = 9,       ///< unsigned, 8 bytes
  float16 = 10,     ///< `Float16`
  bfloat16 = 11,    ///< `BFloat16`
  float32 = 12,     ///< float
  float64 = 13,     ///< double
  complex64 = 14,   ///< two floats: real, imaginary
  complex128 = 15,  ///< two doubles: real, imaginary
};

/// All types, in the order above; for tables and tests.
inline constexpr std::array kAllDTypes = {
    DType::boolean,  DType::int8,    DType::int16,   DType::int32,     DType::int64,
    DType::uint8,    DType::uint16,  DType::uint32,  DType::uint64,    DType::float16,
    DType::bfloat16, DType::float32, DType::float64, DType::complex64, DType::complex128,
};

/// Whether a number from outside is that of a type.
[[nodiscard]] constexpr bool is_dtype(std::uint64_t number) noexcept {
  return number >= static_cast<std::uint64_t>(DType::boolean) &&
         number <= static_cast<std::uint64_t>(DType::complex128);
}

/// Bytes of one element: 1, 2, 4, 8 or 16. Requires: a valid type.
[[nodiscard]] std::size_t size_of(DType dtype) noexcept;

/// The name as written above, e.g. "float32"; "unknown" for an invalid type.
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;

/// The type with this name. Throws `Errc::invalid_argument`, which lists all names.
[[nodiscard]] DType parse_dtype(std::string_view name);

namespace detail {

/// Integers except bool and characters.
template <class T>
inline constexpr bool kIsPlainInteger =
    std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
    !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// The number of the DType for a C++ type; 0 if there is none.
template <class T>
[[nodiscard]] consteval std::uint8_t dtype_number() {
  if constexpr (kIsPlainInteger<T>) {
    const auto first = std::signed_integral<T> ? DType::int8 : DType::uint8;
    constexpr std::uint8_t kPower = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<std::uint8_t>(static_cast<std::uint8_t>(first) + kPower);
  }
  if constexpr (std::same_as<T, bool>) return static_cast<std::uint8_t>(DType::boolean);
  if constexpr (std::same_as<T, Float16>) return static_cast<std::uint8_t>(DType::float16);
  if constexpr (std::same_as<T, BFloat16>) return static_cast<std::uint8_t>(DType::bfloat16);
  if constexpr (std::same_as<T, float>) return static_cast<std::uint8_t>(DType::float32);
  if constexpr (std::same_as<T, double>) return static_cast<std::uint8_t>(DType::float64);
  if constexpr (std::same_as<T, std::complex<float>>) return static_cast<std::uint8_t>(DType::complex64);
  if constexpr (std::same_as<T, std::complex<double>>) return static_cast<std::uint8_t>(DType::complex128);
  return 0;
}

}  // namespace detail

/// A C++ type that can be the element of a tensor: bool, integers except characters, `Float16`, `BFloat16`, float,
/// double, and complex numbers of the latter two.
template <class T>
concept TensorElement = detail::dtype_number<std::remove_cv_t<T>>() != 0;

/// The DType for a C++ type: dtype_of<float>() is DType::float32.
template <TensorElement T>
[[nodiscard]] consteval DType dtype_of() {
  return static_cast<DType>(detail::dtype_number<std::remove_cv_t<T>>());
}

/// An argument that is one number: integer, real or complex.
class Scalar {
 public:
  /// An integer; true and false count as 1 and 0.
  template <std::integral Number>
  Scalar(Number number) noexcept {
    if constexpr (std::signed_integral<Number>) {
      number_ = static_cast<std::int64_t>(number);
    } else {
      number_ = static_cast<std::uint64_t>(number);
    }
  }
  /// A real number.
  template <std::floating_point Number>
  Scalar(Number number) noexcept : number_(static_cast<double>(number)) {}
  /// A complex number.
  template <std::floating_point Part>
  Scalar(std::complex<Part> number) noexcept : number_(std::complex<double>(number)) {}

  /// Writes it as an element of a type, to size_of(dtype) bytes. Rounds real numbers to the type's precision. Throws
  /// `Errc::invalid_argument` for other losses: an integer out of range, a fraction or nan for an integer type, an
  /// imaginary part for a real type, a number other than 0 and 1 for a boolean.
  void store(DType dtype, std::span<std::byte> element) const;

  /// The number as text, for messages.
  [[nodiscard]] std::string to_string() const;

 private:
  std::variant<std::int64_t, std::uint64_t, double, std::complex<double>> number_;
};

}  // namespace drover
