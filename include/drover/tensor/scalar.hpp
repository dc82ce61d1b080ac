// drover/tensor/scalar.hpp: one number of any type.
#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "drover/tensor/dtype.hpp"

namespace drover {

/// One number, as an argument: whole, real or complex. A value.
class Scalar {
 public:
  /// A whole number, or true and false as 1 and 0.
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

  /// Writes it as an element of a type, of size_of(dtype) bytes. Real numbers are rounded to what the type can hold.
  /// Throws `Errc::invalid_argument` where that would change more than digits: a whole number out of range, a
  /// fraction or nan for a whole type, an imaginary part for a real type, other numbers than 0 and 1 for a boolean.
  void store(DType dtype, std::span<std::byte> element) const;

  /// For people.
  [[nodiscard]] std::string to_string() const;

 private:
  std::variant<std::int64_t, std::uint64_t, double, std::complex<double>> number_;
};

}  // namespace drover
