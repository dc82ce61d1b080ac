#include "drover/tensor/dtype.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "tensor/layout/visit_element.hpp"

namespace drover {
namespace {

struct Facts {
  std::string_view name;
  std::size_t size;
};

constexpr std::array<Facts, kAllDTypes.size()> kFacts = {{
    {"boolean", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"uint8", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex64", 8},
    {"complex128", 16},
}};

constexpr Facts facts_of(DType dtype) noexcept {
  const auto number = static_cast<std::size_t>(dtype);
  return is_dtype(number) ? kFacts[number - 1] : Facts{"unknown", 1};
}

template <class T>
constexpr bool can_hold_whole(double number) noexcept {
  // The limits are powers of two, which doubles hold exactly; the upper one is the first that does not fit.
  const double lower = std::is_signed_v<T> ? -std::ldexp(1.0, std::numeric_limits<T>::digits) : 0.0;
  return number == std::trunc(number) && number >= lower && number < std::ldexp(1.0, std::numeric_limits<T>::digits);
}

// Converts a number, or throws a text that describes why T cannot hold it.
// NOLINTBEGIN(bugprone-std-exception-baseclass): Scalar::store converts the text to an Error
template <class T, class Number>
T convert(Number number) {
  if constexpr (tensor::kIsComplex<Number> && tensor::kIsComplex<T>) {
    return T(static_cast<typename T::value_type>(number.real()), static_cast<typename T::value_type>(number.imag()));
  } else if constexpr (tensor::kIsComplex<Number>) {
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
  } else if constexpr (tensor::kIsComplex<T>) {
    return T(static_cast<typename T::value_type>(number));
  } else if constexpr (tensor::kIsHalf<T>) {
    return T(static_cast<float>(number));
  } else {
    return static_cast<T>(number);
  }
}
// NOLINTEND(bugprone-std-exception-baseclass)

}  // namespace

std::size_t size_of(DType dtype) noexcept { return facts_of(dtype).size; }

std::string_view to_string(DType dtype) noexcept { return facts_of(dtype).name; }

DType parse_dtype(std::string_view name) {
  const auto* const found = std::ranges::find(kFacts, name, &Facts::name);
  if (found != kFacts.end()) return static_cast<DType>(found - kFacts.begin() + 1);
  std::string choices;
  for (const auto& facts : kFacts) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", facts.name);
  throw Error(Errc::invalid_argument, fmt::format("'{}' is not a type of elements", name),
              fmt::format("choose one of {}", choices));
}

void Scalar::store(DType dtype, std::span<std::byte> element) const {
  require(element.size() == size_of(dtype), "the memory for a number has the wrong size");
  tensor::visit_element(dtype, [&]<class T>(std::type_identity<T>) {
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
        if constexpr (tensor::kIsComplex<Number>) {
          return fmt::format("{}{:+}j", number.real(), number.imag());
        } else {
          return fmt::format("{}", number);
        }
      },
      number_);
}

}  // namespace drover
