// Computations for tests and examples, on the host: elements of devices are copied there first.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "tensor/layout/visit_element.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

Tensor rows_on_host(const Tensor& tensor) { return tensor.to(Place::cpu()).contiguous(); }

Tensor copy_on_host(const Tensor& tensor) {
  return tensor.place().is_device ? tensor.to(Place::cpu()) : tensor.copy();
}

bool is_same_form(const Tensor& one, const Tensor& other) {
  return one.dtype() == other.dtype() && std::ranges::equal(one.shape(), other.shape());
}

void check_same_form(const Tensor& one, const Tensor& other) {
  if (is_same_form(one, other)) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{} and {} cannot be added", to_string(one.layout()), to_string(other.layout())),
              "give both the same type and shape");
}

template <class T>
double sum_of(std::span<const T> elements) {
  if constexpr (std::integral<T>) {
    std::uint64_t sum = 0;
    for (const T each : elements) sum += static_cast<std::uint64_t>(each);
    return std::signed_integral<T> ? static_cast<double>(static_cast<std::int64_t>(sum)) : static_cast<double>(sum);
  } else {
    double sum = 0;
    double lost = 0;  // what the last addition rounded away
    for (const T each : elements) {
      const double value = static_cast<double>(static_cast<tensor::Computed<T>>(each)) - lost;
      const double next = sum + value;
      lost = std::isfinite(next) ? (next - sum) - value : 0;
      sum = next;
    }
    return sum;
  }
}

// Integers wrap; computed unsigned, where overflow is defined.
template <class T>
T plus(T one, T other) {
  if constexpr (std::same_as<T, bool>) {
    return one || other;
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(one) + static_cast<std::uint64_t>(other));
  } else {
    return T(static_cast<tensor::Computed<T>>(one) + static_cast<tensor::Computed<T>>(other));
  }
}

template <class T>
T times(T one, T other) {
  if constexpr (std::same_as<T, bool>) {
    return one && other;
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(one) * static_cast<std::uint64_t>(other));
  } else {
    return T(static_cast<tensor::Computed<T>>(one) * static_cast<tensor::Computed<T>>(other));
  }
}

template <class T>
bool is_same(T one, T other) {
  return static_cast<tensor::Computed<T>>(one) == static_cast<tensor::Computed<T>>(other);
}

template <class T>
bool is_close(T one, T other, double relative, double absolute) {
  if constexpr (std::integral<T>) {
    const double distance = std::abs(static_cast<double>(one) - static_cast<double>(other));
    return one == other || distance <= absolute + relative * std::abs(static_cast<double>(other));
  } else {
    const auto a = static_cast<tensor::Computed<T>>(one);
    const auto b = static_cast<tensor::Computed<T>>(other);
    if (a == b) return true;  // infinities too
    const auto allowed = absolute + relative * static_cast<double>(std::abs(b));
    return std::isfinite(allowed) && static_cast<double>(std::abs(a - b)) <= allowed;
  }
}

template <class Compare>
bool holds_for_all(const Tensor& one, const Tensor& other, const Compare& compare) {
  if (!is_same_form(one, other)) return false;
  const Tensor first = rows_on_host(one);
  const Tensor second = rows_on_host(other);
  return tensor::visit_element(one.dtype(), [&]<class T>(std::type_identity<T>) {
    return std::ranges::equal(first.elements<T>(), second.elements<T>(), compare);
  });
}

}  // namespace

double sum(const Tensor& tensor) {
  const Tensor rows = rows_on_host(tensor);
  return tensor::visit_element(tensor.dtype(), [&]<class T>(std::type_identity<T>) -> double {
    if constexpr (tensor::kIsComplex<T>) {
      throw Error(Errc::unsupported, fmt::format("{} cannot be summed to a real number", to_string(tensor.dtype())),
                  "sum the real and imaginary parts separately");
    } else {
      return sum_of<T>(rows.elements<T>());
    }
  });
}

Tensor add(const Tensor& one, const Tensor& other) {
  check_same_form(one, other);
  const Tensor result = copy_on_host(one);
  const Tensor second = rows_on_host(other);
  tensor::visit_element(one.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto into = result.elements<T>();
    std::ranges::transform(into, second.elements<T>(), into.begin(), plus<T>);
  });
  return result.to(one.place());
}

Tensor scale(const Tensor& tensor, const Scalar& factor) {
  const Tensor result = copy_on_host(tensor);
  tensor::visit_element(tensor.dtype(), [&]<class T>(std::type_identity<T>) {
    T by{};
    factor.store(tensor.dtype(), std::as_writable_bytes(std::span(&by, 1)));
    for (T& each : result.elements<T>()) each = times<T>(each, by);
  });
  return result.to(tensor.place());
}

bool equal(const Tensor& one, const Tensor& other) {
  return holds_for_all(one, other, [](const auto& a, const auto& b) { return is_same(a, b); });
}

bool all_close(const Tensor& one, const Tensor& other, double relative, double absolute) {
  return holds_for_all(one, other, [&](const auto& a, const auto& b) { return is_close(a, b, relative, absolute); });
}

}  // namespace drover
