#include "drover/tensor/scalar.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "tensor/layout/visit_element.hpp"

namespace drover {
namespace {

template <class T>
constexpr bool can_hold_whole(double number) noexcept {
  // The limits are powers of two, which doubles hold exactly; the upper one is the first that does not fit.
  const double lower = std::is_signed_v<T> ? -std::ldexp(1.0, std::numeric_limits<T>::digits) : 0.0;
  return number == std::trunc(number) && number >= lower && number < std::ldexp(1.0, std::numeric_limits<T>::digits);
}

// What fits, as T; throws the text of what does not.
// NOLINTBEGIN(bugprone-std-exception-baseclass): Scalar::store makes an Error of the text
template <class T, class Number>
T convert(Number number) {
  if constexpr (detail::kIsComplex<Number> && detail::kIsComplex<T>) {
    return T(static_cast<typename T::value_type>(number.real()), static_cast<typename T::value_type>(number.imag()));
  } else if constexpr (detail::kIsComplex<Number>) {
    if (number.imag() != 0) throw "has an imaginary part";
    return convert<T>(number.real());
  } else if constexpr (std::same_as<T, bool>) {
    if (number != Number{0} && number != Number{1}) throw "is neither 0 nor 1";
    return number != Number{0};
  } else if constexpr (std::integral<T> && std::integral<Number>) {
    if (!std::in_range<T>(number)) throw "is out of range";
    return static_cast<T>(number);
  } else if constexpr (std::integral<T>) {
    if (!can_hold_whole<T>(number)) throw "is out of range, or not whole";
    return static_cast<T>(number);
  } else if constexpr (detail::kIsComplex<T>) {
    return T(static_cast<typename T::value_type>(number));
  } else if constexpr (detail::kIsHalf<T>) {
    return T(static_cast<float>(number));
  } else {
    return static_cast<T>(number);
  }
}
// NOLINTEND(bugprone-std-exception-baseclass)

}  // namespace

void Scalar::store(DType dtype, std::span<std::byte> element) const {
  require(element.size() == size_of(dtype), "a number was to be stored in memory of another size");
  detail::visit_element(dtype, [&]<class T>(std::type_identity<T>) {
    try {
      const T value = std::visit([](auto number) { return convert<T>(number); }, number_);
      std::memcpy(element.data(), &value, sizeof(T));
    } catch (const char* reason) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("{} cannot be an element of type {}: it {}", to_string(), drover::to_string(dtype), reason),
          "give a number that the type can hold, or make the tensor of another type");
    }
  });
}

std::string Scalar::to_string() const {
  return std::visit(
      []<class Number>(Number number) {
        if constexpr (detail::kIsComplex<Number>) {
          return fmt::format("{}{:+}j", number.real(), number.imag());
        } else {
          return fmt::format("{}", number);
        }
      },
      number_);
}

}  // namespace drover
