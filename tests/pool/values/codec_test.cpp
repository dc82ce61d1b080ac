// Values of every supported type arrive as sent, and the names of types differ.
#include "drover/pool/codec.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/pool/task.hpp"
#include "pool/values/codec_support.hpp"
#include "support/expect_error.hpp"

namespace drover {

// A type with a codec of its own.
class Celsius {
 public:
  explicit Celsius(double degrees) : degrees_(degrees) {}
  [[nodiscard]] double degrees() const { return degrees_; }
  bool operator==(const Celsius& other) const = default;

 private:
  double degrees_;
};

template <>
struct Codec<Celsius> {
  static void write(Encoder& to, const Celsius& value) { to.write(value.degrees()); }
  static Celsius read(Decoder& from) { return Celsius(from.read_real()); }
  static std::string name() { return "celsius"; }
};

namespace {

using test::expect_error;
using test::OwnMemory;
using test::read_all;
using test::sent;
using test::written;

template <class Type>
void expect_sent(const std::vector<Type>& values) {
  for (const auto& value : values) EXPECT_EQ(sent<Type>(value), value);
}

template <class Whole>
void expect_limits() {
  using Limits = std::numeric_limits<Whole>;
  expect_sent<Whole>({Limits::min(), Limits::max(), Whole{0}, Whole{1}, static_cast<Whole>(Limits::max() / 2)});
  EXPECT_EQ(sent(std::vector<Whole>{Limits::min(), Limits::max()}),
            (std::vector<Whole>{Limits::min(), Limits::max()}));
}

TEST(Codec, integers_arrive_up_to_their_limits) {
  expect_limits<std::int8_t>();
  expect_limits<std::int16_t>();
  expect_limits<std::int32_t>();
  expect_limits<std::int64_t>();
  expect_limits<std::uint8_t>();
  expect_limits<std::uint16_t>();
  expect_limits<std::uint32_t>();
  expect_limits<std::uint64_t>();
  expect_limits<char>();
  expect_limits<long long>();
}

TEST(Codec, numbers_around_every_change_of_encoding_arrive) {
  for (unsigned bits = 0; bits < 63; ++bits) {
    for (const std::int64_t step : {-2, -1, 0, 1, 2}) {
      const std::int64_t value = (std::int64_t{1} << bits) + step;
      EXPECT_EQ(sent(value), value);
      EXPECT_EQ(sent(-value), -value);
      const auto magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
      EXPECT_EQ(sent(magnitude), magnitude);
    }
  }
}

TEST(Codec, a_number_that_does_not_fit_its_type_is_corrupt) {
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<std::int8_t>(written(128))); });
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<std::int8_t>(written(-129))); });
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<std::uint8_t>(written(256))); });
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<std::uint64_t>(written(-1))); });
  expect_error(Errc::corrupt,
               [] { static_cast<void>(read_all<std::int64_t>(written(std::numeric_limits<std::uint64_t>::max()))); });
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<float>(written(1e300))); });
  EXPECT_EQ(read_all<std::uint8_t>(written(std::int64_t{255})), 255);
  EXPECT_EQ(read_all<double>(written(-3)), -3.0);
  EXPECT_EQ(read_all<double>(written(std::numeric_limits<std::uint64_t>::max())), 0x1p64);
}

TEST(Codec, real_numbers_arrive_bit_for_bit) {
  using Limits = std::numeric_limits<double>;
  expect_sent<double>({0.0, 1.5, -2.25, Limits::min(), Limits::max(), Limits::lowest(), Limits::denorm_min(),
                       Limits::infinity(), -Limits::infinity()});
  expect_sent<float>({0.1F, -3.5F, std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
                      std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()});
  EXPECT_TRUE(std::isnan(sent(Limits::quiet_NaN())));
  EXPECT_TRUE(std::isnan(sent(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::signbit(sent(-0.0)));
  EXPECT_EQ(read_all<double>(test::raw({0xca, 0x3f, 0xc0, 0, 0})), 1.5);
}

TEST(Codec, bools_and_enums_arrive) {
  enum class Small : std::int8_t { low = -128, high = 127 };
  enum class Wide : std::uint64_t { last = ~0ULL };
  enum class Yes : bool { no, yes };
  expect_sent<bool>({true, false});
  expect_sent<Small>({Small::low, Small::high});
  expect_sent<Wide>({Wide::last});
  expect_sent<Yes>({Yes::no, Yes::yes});
  EXPECT_EQ(sent(std::vector<bool>{true, false, true}), (std::vector<bool>{true, false, true}));
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<Small>(written(1000))); });
}

TEST(Codec, texts_of_every_length_and_any_bytes_arrive) {
  for (const std::size_t length : {0U, 1U, 31U, 32U, 255U, 256U, 65535U, 65536U, 1U << 20U}) {
    const std::string text(length, 'x');
    EXPECT_EQ(sent(text), text) << length;
  }
  EXPECT_EQ(sent(std::string("a\0b\xff\n", 5)), std::string("a\0b\xff\n", 5));
}

TEST(Codec, lists_of_every_length_arrive) {
  for (const std::size_t length : {0U, 1U, 15U, 16U, 255U, 256U, 65535U, 65536U}) {
    EXPECT_EQ(sent(std::vector<std::string>(length, "ab")), std::vector<std::string>(length, "ab")) << length;
    EXPECT_EQ(sent(std::vector<double>(length, 0.5)), std::vector<double>(length, 0.5)) << length;
    EXPECT_EQ(sent(std::vector<std::byte>(length, std::byte{200})), std::vector<std::byte>(length, std::byte{200}));
  }
  std::map<int, int> map;
  for (int i = 0; i < 70'000; ++i) map[i] = -i;
  EXPECT_EQ(sent(map), map);
}

TEST(Codec, lists_of_numbers_and_bytes_are_as_compact_as_in_memory) {
  EXPECT_LE(written(std::vector<double>(1000)).size(), 8000U + 5);
  EXPECT_LE(written(std::vector<std::byte>(1000, std::byte{255})).size(), 1000U + 5);
}

TEST(Codec, containers_of_containers_arrive) {
  using Nested = std::map<std::string, std::vector<std::optional<std::pair<int, std::vector<float>>>>>;
  const Nested nested{{"", {}},
                      {"a", {std::nullopt, std::pair(1, std::vector<float>{}), std::pair(2, std::vector{.5F})}}};
  EXPECT_EQ(sent(nested), nested);
  const std::unordered_map<std::string, std::tuple<bool, std::array<int, 3>>> other{{"x", {true, {1, 2, 3}}}};
  EXPECT_EQ(sent(other), other);
  const std::map<std::pair<int, int>, std::vector<std::vector<int>>> keyed{{{1, 2}, {{1}, {}, {2, 3}}}};
  EXPECT_EQ(sent(keyed), keyed);
}

TEST(Codec, tuples_arrays_and_pairs_arrive) {
  EXPECT_EQ(sent(std::tuple<>()), std::tuple<>());
  EXPECT_EQ(sent(std::tuple(1, std::string("b"), 2.5)), std::tuple(1, std::string("b"), 2.5));
  EXPECT_EQ(sent(std::pair(std::string("a"), -1)), std::pair(std::string("a"), -1));
  EXPECT_EQ(sent(std::array<std::string, 2>{"a", "b"}), (std::array<std::string, 2>{"a", "b"}));
  EXPECT_EQ(sent(std::array<int, 0>{}), (std::array<int, 0>{}));
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<std::array<int, 3>>(written(std::array{1, 2}))); });
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<std::pair<int, int>>(written(std::tuple(1, 2, 3)))); });
}

TEST(Codec, nested_optionals_arrive) {
  using Twice = std::optional<std::optional<int>>;
  expect_sent<std::optional<int>>({std::nullopt, 0, 7});
  expect_sent<Twice>({Twice(), Twice(std::in_place), Twice(5)});
  EXPECT_TRUE(sent(Twice(std::in_place)).has_value());
  using Thrice = std::optional<Twice>;
  EXPECT_EQ(sent(Thrice(Twice(std::in_place))), Thrice(Twice(std::in_place)));
}

TEST(Codec, a_type_of_the_program_arrives_inside_others_too) {
  EXPECT_EQ(sent(Celsius(21.5)), Celsius(21.5));
  const std::map<int, std::vector<Celsius>> map{{1, {Celsius(1), Celsius(-2)}}};
  EXPECT_EQ(sent(map), map);
  EXPECT_EQ((Codec<std::map<int, std::vector<Celsius>>>::name()), "map<int32,list<celsius>>");
}

TEST(Codec, names_tell_types_apart) {
  enum class Shade : std::uint16_t { dark };
  EXPECT_EQ(Codec<bool>::name(), "bool");
  EXPECT_EQ(Codec<std::int8_t>::name(), "int8");
  EXPECT_EQ(Codec<unsigned long long>::name(), "uint64");
  EXPECT_EQ(Codec<float>::name(), "float32");
  EXPECT_EQ(Codec<double>::name(), "float64");
  EXPECT_EQ(Codec<Shade>::name(), "enum:uint16");
  EXPECT_EQ(Codec<std::string>::name(), "string");
  EXPECT_EQ(Codec<Tensor>::name(), "tensor");
  EXPECT_EQ(Codec<std::vector<std::optional<int>>>::name(), "list<optional<int32>>");
  EXPECT_EQ((Codec<std::array<double, 3>>::name()), "array<float64,3>");
  EXPECT_EQ((Codec<std::unordered_map<std::string, int>>::name()), "map<string,int32>");
  EXPECT_EQ((Codec<std::pair<int, bool>>::name()), "tuple<int32,bool>");
  EXPECT_EQ((Codec<std::tuple<>>::name()), "tuple<>");
  EXPECT_EQ((detail::signature_of<double, Tensor, int>()), "(tensor,int32) -> float64");
  EXPECT_EQ((detail::signature_of<void>()), "() -> nothing");
}

TEST(Codec, tensors_are_shared_in_the_order_written) {
  const OwnMemory own;
  const Tensor one = arange(own.memory(), DType::int64, 0, 5);
  const Tensor two = zeros(own.memory(), DType::float32, {2, 3});
  Encoder to;
  Codec<std::vector<Tensor>>::write(to, {one, two, one});
  ASSERT_EQ(to.tensors().size(), 3U);
  const auto [bytes, tensors] = to.take();
  EXPECT_TRUE(to.bytes().empty());
  EXPECT_TRUE(to.tensors().empty());
  const auto read = read_all<std::vector<Tensor>>(bytes, tensors);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(sum(read[0]), 10);
  EXPECT_EQ(read[1].layout(), two.layout());
  one.fill(1);
  EXPECT_EQ(sum(read[2]), 5);
}

TEST(Codec, a_tensor_without_memory_is_refused) {
  Encoder to;
  expect_error(Errc::invalid_argument, [&] { to.write(Tensor()); }, {"without memory"});
  EXPECT_TRUE(to.bytes().empty());
}

TEST(Codec, too_many_tensors_are_refused) {
  const OwnMemory own;
  const Tensor tensor = zeros(own.memory(), DType::uint8, {1});
  Encoder to;
  for (std::size_t i = 0; i < kMostTaskTensors; ++i) to.write(tensor);
  expect_error(Errc::limit_reached, [&] { to.write(tensor); }, {"65536 tensors"});
  EXPECT_EQ(to.tensors().size(), kMostTaskTensors);
}

}  // namespace
}  // namespace drover
