// New tensors and their contents.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tensor/layout/copy_strided.hpp"
#include "tensor/layout/visit_element.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

constexpr std::uint64_t kMostCounted = std::uint64_t{1} << 62U;

// Random bits for the nth element: a hashed counter, so that each element can be computed independently.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t nth) noexcept {
  std::uint64_t bits = seed + (nth + 1) * 0x9e37'79b9'7f4a'7c15;
  bits = (bits ^ (bits >> 30U)) * 0xbf58'476d'1ce4'e5b9;
  bits = (bits ^ (bits >> 27U)) * 0x94d0'49bb'1331'11eb;
  return bits ^ (bits >> 31U);
}

// In [0, 1), with no more bits than the type keeps, so that it is never rounded up to 1.
double fraction(std::uint64_t bits, int digits) noexcept {
  return std::ldexp(static_cast<double>(bits >> static_cast<unsigned>(64 - digits)), -digits);
}

template <class T>
T random_element(std::uint64_t seed, std::uint64_t nth) noexcept {
  const std::uint64_t bits = mixed(seed, nth);
  if constexpr (tensor::kIsComplex<T>) {
    using Part = typename T::value_type;
    return T(random_element<Part>(seed, 2 * nth), random_element<Part>(seed, 2 * nth + 1));
  } else if constexpr (std::same_as<T, bool>) {
    return (bits >> 63U) != 0;
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(bits);
  } else if constexpr (std::same_as<T, Float16>) {
    return T(static_cast<float>(fraction(bits, 11)));
  } else if constexpr (std::same_as<T, BFloat16>) {
    return T(static_cast<float>(fraction(bits, 8)));
  } else {
    return static_cast<T>(fraction(bits, std::numeric_limits<T>::digits));
  }
}

// The largest whole number up to which the type represents all exactly.
template <class T>
constexpr std::int64_t counts_to() noexcept {
  if constexpr (tensor::kIsComplex<T>) {
    return counts_to<typename T::value_type>();
  } else if constexpr (sizeof(T) == 8 && std::integral<T>) {
    return std::numeric_limits<std::int64_t>::max();
  } else if constexpr (std::integral<T>) {
    return static_cast<std::int64_t>(std::numeric_limits<T>::max());
  } else if constexpr (std::same_as<T, Float16>) {
    return std::int64_t{1} << 11U;
  } else if constexpr (std::same_as<T, BFloat16>) {
    return std::int64_t{1} << 8U;
  } else {
    return std::int64_t{1} << static_cast<unsigned>(std::numeric_limits<T>::digits);
  }
}

template <class T>
void check_range(DType dtype, std::int64_t begin, std::int64_t end) {
  const std::int64_t most = counts_to<T>();
  const std::int64_t least = std::unsigned_integral<T> ? 0 : std::signed_integral<T> ? -most - 1 : -most;
  const std::uint64_t count = static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin);
  const bool is_countable = begin < end && begin >= least && end - 1 <= most && count <= kMostCounted;
  if (begin == end || is_countable) return;
  throw Error(Errc::invalid_argument, fmt::format("{} cannot count from {} up to {}", to_string(dtype), begin, end),
              "begin at the smaller number, and use a type that represents both exactly");
}

template <class T>
T counted(std::int64_t number) {
  if constexpr (tensor::kIsHalf<T>) {
    return T(static_cast<float>(number));
  } else if constexpr (tensor::kIsComplex<T>) {
    return T(static_cast<typename T::value_type>(number));
  } else {
    return static_cast<T>(number);
  }
}

// Computed in host memory, then copied to `place`.
template <class Element>
Tensor computed(const Memory& memory, const TensorLayout& layout, const Place& place, const Element& element) {
  const Tensor made = tensor::TensorAccess::make_like(memory, layout, Place::cpu());
  tensor::visit_element(layout.dtype(), [&]<class T>(std::type_identity<T> type) {
    std::uint64_t nth = 0;
    for (T& each : made.elements<T>()) each = element(type, nth++);
  });
  return made.to(place);
}

}  // namespace

Tensor empty(const Memory& memory, DType dtype, const Dims& shape, const Place& place) {
  return tensor::TensorAccess::make_like(memory, TensorLayout::contiguous(dtype, shape), place);
}

Tensor zeros(const Memory& memory, DType dtype, const Dims& shape, const Place& place) {
  return full(memory, dtype, shape, 0, place);
}

Tensor full(const Memory& memory, DType dtype, const Dims& shape, const Scalar& number, const Place& place) {
  const Tensor made = empty(memory, dtype, shape, place);
  made.fill(number);
  return made;
}

Tensor arange(const Memory& memory, DType dtype, std::int64_t begin, std::int64_t end, const Place& place) {
  tensor::visit_element(dtype, [&]<class T>(std::type_identity<T>) { check_range<T>(dtype, begin, end); });
  const auto layout = TensorLayout::contiguous(dtype, {end - begin});
  return computed(memory, layout, place, [&]<class T>(std::type_identity<T>, std::uint64_t nth) {
    return counted<T>(begin + static_cast<std::int64_t>(nth));
  });
}

Tensor random(const Memory& memory, DType dtype, const Dims& shape, std::uint64_t seed, const Place& place) {
  return computed(memory, TensorLayout::contiguous(dtype, shape), place,
                  [&]<class T>(std::type_identity<T>, std::uint64_t nth) { return random_element<T>(seed, nth); });
}

Tensor from_bytes(const Memory& memory, const TensorLayout& layout, std::span<const std::byte> bytes,
                  const Place& place) {
  tensor::check_memory(layout, bytes.size());
  const auto rows = TensorLayout::contiguous(layout.dtype(), layout.shape());
  const Tensor made = tensor::TensorAccess::make_like(memory, rows, Place::cpu());
  const tensor::TensorStorage& storage = *tensor::TensorAccess::storage(made);
  if (layout.is_contiguous()) {
    const ByteRange extent = layout.extent_bytes();
    storage.write(0, bytes.subspan(extent.begin, extent.end - extent.begin));
  } else {
    copy_strided(storage.block().bytes(), rows, bytes, layout);
  }
  return made.to(place);
}

}  // namespace drover
