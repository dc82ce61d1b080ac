// drover/pool/aggregate.hpp: the fields of plain structs, which tasks take and return.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

namespace drover::detail {

inline constexpr std::size_t kMostFields = 16;

// Converts to any field. Never called, but clang requires a body where a field is an optional of a struct without
// linkage.
struct AnyField {
  template <class Field>
  operator Field() const {  // NOLINT(google-explicit-constructor): stands for an initialiser of any type
    std::abort();
  }
};

template <class Struct, std::size_t... Indices>
consteval bool takes_fields(std::index_sequence<Indices...> /*indices*/) {
  return requires { Struct{(static_cast<void>(Indices), AnyField{})...}; };
}

template <class Struct, std::size_t Count = kMostFields>
consteval std::size_t count_fields() {
  if constexpr (Count == 0) {
    return 0;
  } else if constexpr (takes_fields<Struct>(std::make_index_sequence<Count>())) {
    return Count;
  } else {
    return count_fields<Struct, Count - 1>();
  }
}

// Converts only to the bases of a struct.
template <class Struct>
struct AnyBase {
  template <class Base>
    requires(std::is_base_of_v<Base, Struct> && !std::same_as<Base, Struct>)
  operator Base() const;  // NOLINT(google-explicit-constructor): as above
};

template <class Struct>
concept HasBase = requires { Struct{AnyBase<Struct>{}}; };

/// A struct with 1 to 16 public fields, and no bases, constructors or C arrays.
template <class Type>
concept Aggregate = std::is_class_v<Type> && std::is_aggregate_v<Type> && (count_fields<Type>() > 0) &&
                    !takes_fields<Type>(std::make_index_sequence<kMostFields + 1>()) && !HasBase<Type>;

/// References to all fields of a struct, in order.
template <class Struct>
constexpr auto fields_of(Struct& object) {
  constexpr std::size_t kCount = count_fields<std::remove_const_t<Struct>>();
  // clang-format off
  if constexpr (kCount == 1) { auto& [a] = object; return std::tie(a); }
  else if constexpr (kCount == 2) { auto& [a, b] = object; return std::tie(a, b); }
  else if constexpr (kCount == 3) { auto& [a, b, c] = object; return std::tie(a, b, c); }
  else if constexpr (kCount == 4) { auto& [a, b, c, d] = object; return std::tie(a, b, c, d); }
  else if constexpr (kCount == 5) { auto& [a, b, c, d, e] = object; return std::tie(a, b, c, d, e); }
  else if constexpr (kCount == 6) { auto& [a, b, c, d, e, f] = object; return std::tie(a, b, c, d, e, f); }
  else if constexpr (kCount == 7) { auto& [a, b, c, d, e, f, g] = object; return std::tie(a, b, c, d, e, f, g); }
  else if constexpr (kCount == 8) { auto& [a, b, c, d, e, f, g, h] = object; return std::tie(a, b, c, d, e, f, g, h); }
  else if constexpr (kCount == 9) { auto& [a, b, c, d, e, f, g, h, i] = object; return std::tie(a, b, c, d, e, f, g, h, i); }
  else if constexpr (kCount == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = object; return std::tie(a, b, c, d, e, f, g, h, i, j); }
  else if constexpr (kCount == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = object; return std::tie(a, b, c, d, e, f, g, h, i, j, k); }
  else if constexpr (kCount == 12) { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = object; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l); }
  else if constexpr (kCount == 13) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = object; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m); }
  else if constexpr (kCount == 14) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = object; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n); }
  else if constexpr (kCount == 15) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = object; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }
  else { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = object; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); }
  // clang-format on
}

}  // namespace drover::detail
