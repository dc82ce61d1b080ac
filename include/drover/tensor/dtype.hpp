// drover/tensor/dtype.hpp: what the elements of a tensor are.
#pragma once

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "drover/tensor/half.hpp"

namespace drover {

/// The type of a tensor's elements. The numbers travel between processes and never change; 0 is none of them, so
/// that memory nobody wrote is no type.
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

/// Whether a number that came from outside is that of a type.
[[nodiscard]] constexpr bool is_dtype(std::uint64_t number) noexcept {
  return number >= static_cast<std::uint64_t>(DType::boolean) &&
         number <= static_cast<std::uint64_t>(DType::complex128);
}

/// Bytes of one element: 1, 2, 4, 8 or 16. Requires: a type of the list.
[[nodiscard]] std::size_t size_of(DType dtype) noexcept;

/// The name as written above, "float32"; "unknown" for what is none of the list.
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;

/// The type with this name. Throws `Errc::invalid_argument`, which lists the names.
[[nodiscard]] DType parse_dtype(std::string_view name);

namespace detail {

/// No two of them are the same type, and none is a character.
template <class T>
inline constexpr bool kIsPlainInteger =
    std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
    !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// The type of a C++ type; 0 where there is none.
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

/// A C++ type that can be the element of a tensor: bool, integers but no characters, `Float16`, `BFloat16`, float,
/// double and complex numbers of the latter two.
template <class T>
concept TensorElement = detail::dtype_number<std::remove_cv_t<T>>() != 0;

/// The type of elements that are a C++ type: dtype_of<float>() is DType::float32.
template <TensorElement T>
[[nodiscard]] consteval DType dtype_of() {
  return static_cast<DType>(detail::dtype_number<std::remove_cv_t<T>>());
}

}  // namespace drover
