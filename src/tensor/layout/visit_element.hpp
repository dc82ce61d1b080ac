// tensor/layout/visit_element.hpp: dispatch from a DType to its C++ type; private.
#pragma once

#include <complex>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/tensor/dtype.hpp"

namespace drover::tensor {

template <class T>
inline constexpr bool kIsComplex = std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>>;
template <class T>
inline constexpr bool kIsHalf = std::same_as<T, Float16> || std::same_as<T, BFloat16>;

/// The type to compute with: float for 16-bit floats, otherwise T itself.
template <class T>
using Computed = std::conditional_t<kIsHalf<T>, float, T>;

/// Calls `visit(std::type_identity<T>{})` with the C++ type of elements of `dtype`.
template <class Visit>
decltype(auto) visit_element(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::boolean: return visit(std::type_identity<bool>{});
    case DType::int8: return visit(std::type_identity<std::int8_t>{});
    case DType::int16: return visit(std::type_identity<std::int16_t>{});
    case DType::int32: return visit(std::type_identity<std::int32_t>{});
    case DType::int64: return visit(std::type_identity<std::int64_t>{});
    case DType::uint8: return visit(std::type_identity<std::uint8_t>{});
    case DType::uint16: return visit(std::type_identity<std::uint16_t>{});
    case DType::uint32: return visit(std::type_identity<std::uint32_t>{});
    case DType::uint64: return visit(std::type_identity<std::uint64_t>{});
    case DType::float16: return visit(std::type_identity<Float16>{});
    case DType::bfloat16: return visit(std::type_identity<BFloat16>{});
    case DType::float32: return visit(std::type_identity<float>{});
    case DType::float64: return visit(std::type_identity<double>{});
    case DType::complex64: return visit(std::type_identity<std::complex<float>>{});
    case DType::complex128: return visit(std::type_identity<std::complex<double>>{});
  }
  throw Error(Errc::invalid_argument, fmt::format("{} is not the number of a DType", static_cast<int>(dtype)),
              "use a value of DType");
}

}  // namespace drover::tensor
