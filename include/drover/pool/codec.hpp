// drover/pool/codec.hpp: arguments and results of tasks as bytes and tensors.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "drover/pool/aggregate.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

namespace detail {
class ValueText;
}  // namespace detail

/// Most tensors in the arguments of a task, and in its result.
inline constexpr std::size_t kMostTaskTensors = 65'536;

/// Writes values as MessagePack, and tensors in a separate list. Throws `Errc::limit_reached` beyond 4 GiB or
/// `kMostTaskTensors`, and `Errc::invalid_argument` for a tensor without memory.
class Encoder {
 public:
  void write(bool value);                              ///< true or false
  void write(std::int64_t value);                      ///< a signed integer
  void write(std::uint64_t value);                     ///< an unsigned integer
  void write(double value);                            ///< a real number
  void write(std::string_view value);                  ///< text, or any bytes
  void write(const Tensor& tensor);                    ///< by reference, without a copy
  void write_nothing();                                ///< an absent value
  void write_bytes(std::span<const std::byte> bytes);  ///< raw bytes
  void begin_list(std::size_t count);                  ///< `count` values follow
  void begin_map(std::size_t count);                   ///< `count` pairs of values follow

  /// The bytes written.
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }
  /// The tensors, in the order written.
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  /// Moves both out and leaves the encoder empty.
  [[nodiscard]] std::pair<std::string, std::vector<Tensor>> take() noexcept {
    return {std::exchange(bytes_, {}), std::exchange(tensors_, {})};
  }

 private:
  std::string bytes_;
  std::vector<Tensor> tensors_;
};

/// Reads what an Encoder wrote. Throws `Errc::corrupt` for anything else, including truncated input.
class Decoder {
 public:
  /// Requires: both outlive this.
  explicit Decoder(std::span<const std::byte> bytes, std::span<const Tensor> tensors = {}) noexcept
      : rest_(bytes), tensors_(tensors) {}

  [[nodiscard]] bool read_bool();                         ///< true or false
  [[nodiscard]] std::int64_t read_signed();               ///< any integer that fits
  [[nodiscard]] std::uint64_t read_unsigned();            ///< any integer that fits
  [[nodiscard]] double read_real();                       ///< any number
  [[nodiscard]] std::string_view read_text();             ///< valid as long as the bytes
  [[nodiscard]] Tensor read_tensor();                     ///< shares its memory
  [[nodiscard]] bool read_nothing();                      ///< whether the next value is absent; skips it if so
  [[nodiscard]] std::span<const std::byte> read_bytes();  ///< valid as long as the bytes
  [[nodiscard]] std::size_t read_list();                  ///< number of values that follow
  [[nodiscard]] std::size_t read_map();                   ///< number of pairs that follow
  /// Whether everything was read.
  [[nodiscard]] bool is_done() const noexcept { return rest_.empty(); }
  /// Throws `Errc::corrupt` unless `holds`.
  static void check(bool holds);

 private:
  friend class detail::ValueText;
  [[nodiscard]] std::uint8_t next();
  [[nodiscard]] std::span<const std::byte> cut(std::uint64_t count);
  [[nodiscard]] std::uint64_t read_big_endian(std::size_t bytes);
  [[nodiscard]] std::uint64_t read_length(std::uint8_t first, std::uint8_t fixed, std::uint8_t fixed_most,
                                          std::uint8_t wide);

  std::span<const std::byte> rest_;
  std::span<const Tensor> tensors_;
};

/// Values that an Encoder wrote, as text: `3, "abc", [1, 2, ...], tensor float32[2, 3]`, truncated to `most`
/// characters. Corrupt input gives "(broken)" instead of an error.
[[nodiscard]] std::string describe_values(std::span<const std::byte> bytes, std::span<const Tensor> tensors,
                                          std::size_t most = 200);

/// Sends values of a type: `write`, `read`, and `name` for signatures. Supports numbers, enums, text, `std::vector`,
/// `std::array`, `std::map`, `std::unordered_map`, `std::pair`, `std::tuple`, `std::optional`, tensors, and plain
/// structs of up to 16 such fields. Programs may specialise it; `write` must write at least one value.
template <class Type>
struct Codec;

namespace detail {

template <class Type>
concept Number = std::is_arithmetic_v<Type> && !std::same_as<Type, bool> && !std::same_as<Type, long double>;

// Types that are sent as they lie in memory.
template <class Type>
concept Plain = Number<Type> || std::same_as<Type, std::byte>;

template <Number Type>
std::string number_name() {
  const char* const kind = std::is_floating_point_v<Type> ? "float" : std::is_signed_v<Type> ? "int" : "uint";
  return kind + std::to_string(8 * sizeof(Type));
}

template <Plain Type>
void write_numbers(Encoder& to, std::span<const Type> numbers) {
  to.write_bytes(std::as_bytes(numbers));
}

// Throws `Errc::corrupt` unless the sizes are equal.
void copy_numbers(std::span<const std::byte> from, std::span<std::byte> to);

// Items to reserve memory for before they are read: a corrupt count must not exhaust memory.
template <class Item>
std::size_t room_for(std::size_t count) {
  constexpr std::size_t kMost = (std::size_t{1} << 20) / sizeof(Item);
  return count < kMost ? count : kMost;
}

}  // namespace detail

/// Whether a type can be an argument or result of a task.
template <class Type>
concept Codable = requires(Encoder& to, Decoder& from, const Type& value) {
  Codec<Type>::write(to, value);
  { Codec<Type>::read(from) } -> std::convertible_to<Type>;
  { Codec<Type>::name() } -> std::convertible_to<std::string>;
};

/// \cond specialisations for the supported types, each with the three functions of Codec

template <>
struct Codec<bool> {
  static void write(Encoder& to, bool value) { to.write(value); }
  static bool read(Decoder& from) { return from.read_bool(); }
  static std::string name() { return "bool"; }
};

template <detail::Number Type>
struct Codec<Type> {
  static void write(Encoder& to, Type value) {
    if constexpr (std::is_floating_point_v<Type>) {
      to.write(static_cast<double>(value));
    } else if constexpr (std::is_signed_v<Type>) {
      to.write(static_cast<std::int64_t>(value));
    } else {
      to.write(static_cast<std::uint64_t>(value));
    }
  }
  static Type read(Decoder& from) {
    if constexpr (std::is_floating_point_v<Type>) {
      const double wide = from.read_real();
      Decoder::check(!(std::abs(wide) > std::numeric_limits<Type>::max()) || std::isinf(wide));
      return static_cast<Type>(wide);
    } else if constexpr (std::is_signed_v<Type>) {
      return narrowed(from.read_signed());
    } else {
      return narrowed(from.read_unsigned());
    }
  }
  static std::string name() { return detail::number_name<Type>(); }

 private:
  template <class Wide>
  static Type narrowed(Wide wide) {
    const auto narrow = static_cast<Type>(wide);
    Decoder::check(static_cast<Wide>(narrow) == wide);
    return narrow;
  }
};

template <class Type>
  requires std::is_enum_v<Type>
struct Codec<Type> {
  using Under = std::underlying_type_t<Type>;
  static void write(Encoder& to, Type value) { Codec<Under>::write(to, static_cast<Under>(value)); }
  static Type read(Decoder& from) { return static_cast<Type>(Codec<Under>::read(from)); }
  static std::string name() { return "enum:" + Codec<Under>::name(); }
};

template <>
struct Codec<std::string> {
  static void write(Encoder& to, const std::string& value) { to.write(std::string_view(value)); }
  static std::string read(Decoder& from) { return std::string(from.read_text()); }
  static std::string name() { return "string"; }
};

template <>
struct Codec<Tensor> {
  static void write(Encoder& to, const Tensor& value) { to.write(value); }
  static Tensor read(Decoder& from) { return from.read_tensor(); }
  static std::string name() { return "tensor"; }
};

template <Codable Item>
struct Codec<std::vector<Item>> {
  static void write(Encoder& to, const std::vector<Item>& items) {
    if constexpr (detail::Plain<Item>) {
      detail::write_numbers(to, std::span<const Item>(items));
    } else {
      to.begin_list(items.size());
      for (const auto& item : items) Codec<Item>::write(to, item);
    }
  }
  static std::vector<Item> read(Decoder& from) {
    std::vector<Item> items;
    if constexpr (detail::Plain<Item>) {
      const auto bytes = from.read_bytes();
      items.resize(bytes.size() / sizeof(Item));
      detail::copy_numbers(bytes, std::as_writable_bytes(std::span(items)));
    } else {
      const std::size_t count = from.read_list();
      items.reserve(detail::room_for<Item>(count));
      for (std::size_t i = 0; i < count; ++i) items.push_back(Codec<Item>::read(from));
    }
    return items;
  }
  static std::string name() { return "list<" + Codec<Item>::name() + ">"; }
};

template <Codable Item, std::size_t Count>
struct Codec<std::array<Item, Count>> {
  static void write(Encoder& to, const std::array<Item, Count>& items) {
    to.begin_list(Count);
    for (const auto& item : items) Codec<Item>::write(to, item);
  }
  static std::array<Item, Count> read(Decoder& from) {
    Decoder::check(from.read_list() == Count);
    std::array<Item, Count> items{};
    for (auto& item : items) item = Codec<Item>::read(from);
    return items;
  }
  static std::string name() { return "array<" + Codec<Item>::name() + "," + std::to_string(Count) + ">"; }
};

namespace detail {

template <class Map>
struct MapCodec {
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;
  static void write(Encoder& to, const Map& map) {
    to.begin_map(map.size());
    for (const auto& [key, value] : map) {
      Codec<Key>::write(to, key);
      Codec<Mapped>::write(to, value);
    }
  }
  static Map read(Decoder& from) {
    Map map;
    const std::size_t count = from.read_map();
    for (std::size_t i = 0; i < count; ++i) {
      auto key = Codec<Key>::read(from);
      map.insert_or_assign(std::move(key), Codec<Mapped>::read(from));
    }
    return map;
  }
  static std::string name() { return "map<" + Codec<Key>::name() + "," + Codec<Mapped>::name() + ">"; }
};

template <class... Items>
std::string names_of(std::string_view open, std::string_view close) {
  std::string text(open);
  ((text += (text.size() > open.size() ? "," : "") + Codec<Items>::name()), ...);
  return text += close;
}

template <class... Items>
struct TupleCodec {
  template <class Tuple>
  static void write(Encoder& to, const Tuple& tuple) {
    to.begin_list(sizeof...(Items));
    std::apply([&](const auto&... item) { (Codec<Items>::write(to, item), ...); }, tuple);
  }
  static std::tuple<Items...> read(Decoder& from) {
    Decoder::check(from.read_list() == sizeof...(Items));
    return std::tuple<Items...>{Codec<Items>::read(from)...};  // braces evaluate in order
  }
};

}  // namespace detail

template <Codable Key, Codable Mapped, class Order, class Allocator>
struct Codec<std::map<Key, Mapped, Order, Allocator>> : detail::MapCodec<std::map<Key, Mapped, Order, Allocator>> {};

template <Codable Key, Codable Mapped>
struct Codec<std::unordered_map<Key, Mapped>> : detail::MapCodec<std::unordered_map<Key, Mapped>> {};

template <Codable... Items>
struct Codec<std::tuple<Items...>> : detail::TupleCodec<Items...> {
  static std::string name() { return detail::names_of<Items...>("tuple<", ">"); }
};

template <Codable First, Codable Second>
struct Codec<std::pair<First, Second>> {
  static void write(Encoder& to, const std::pair<First, Second>& pair) {
    detail::TupleCodec<First, Second>::write(to, pair);
  }
  static std::pair<First, Second> read(Decoder& from) {
    auto [first, second] = detail::TupleCodec<First, Second>::read(from);
    return {std::move(first), std::move(second)};
  }
  static std::string name() { return detail::names_of<First, Second>("tuple<", ">"); }
};

namespace detail {

template <class Type>
inline constexpr bool kIsOptional = false;
template <class Item>
inline constexpr bool kIsOptional<std::optional<Item>> = true;

}  // namespace detail

template <Codable Item>
struct Codec<std::optional<Item>> {
  // A nested optional is in a list, to tell which of the two is absent.
  static constexpr bool kIsInList = detail::kIsOptional<Item>;
  static void write(Encoder& to, const std::optional<Item>& value) {
    if (value) {
      if constexpr (kIsInList) to.begin_list(1);
      Codec<Item>::write(to, *value);
    } else {
      to.write_nothing();
    }
  }
  static std::optional<Item> read(Decoder& from) {
    if (from.read_nothing()) return std::nullopt;
    if constexpr (kIsInList) Decoder::check(from.read_list() == 1);
    return std::optional<Item>(std::in_place, Codec<Item>::read(from));
  }
  static std::string name() { return "optional<" + Codec<Item>::name() + ">"; }
};

template <detail::Aggregate Struct>
struct Codec<Struct> {
  static void write(Encoder& to, const Struct& value) {
    const auto fields = detail::fields_of(value);
    to.begin_list(std::tuple_size_v<decltype(fields)>);
    std::apply([&](const auto&... field) { (Codec<std::remove_cvref_t<decltype(field)>>::write(to, field), ...); },
               fields);
  }
  static Struct read(Decoder& from) {
    Struct value{};
    auto fields = detail::fields_of(value);
    Decoder::check(from.read_list() == std::tuple_size_v<decltype(fields)>);
    std::apply([&](auto&... field) { ((field = Codec<std::remove_cvref_t<decltype(field)>>::read(from)), ...); },
               fields);
    return value;
  }
  static std::string name() {
    Struct* const unused = nullptr;
    return [&]<class... Fields>(std::tuple<Fields&...>* /*fields*/) {
      static_assert((Codable<Fields> && ...),
                    "a field of this struct has a type that drover::Codec does not support");
      return detail::names_of<Fields...>("{", "}");
    }(static_cast<decltype(detail::fields_of(*unused))*>(nullptr));
  }
};

/// \endcond

}  // namespace drover
