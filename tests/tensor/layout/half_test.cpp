// 16-bit floats, compared with their definition.
#include "drover/tensor/dtype.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace drover::tensor {
namespace {

constexpr std::uint32_t kPatterns = 65536;
constexpr float kHalfInfinity = std::numeric_limits<float>::infinity();

// The value of a bit pattern by definition: sign, exponent and fraction.
double defined_value(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto fraction = static_cast<double>(bits & ((1U << static_cast<unsigned>(fraction_bits)) - 1));
  const int exponent = static_cast<int>((bits & 0x7fffU) >> static_cast<unsigned>(fraction_bits));
  const double scale = std::ldexp(1.0, -fraction_bits);
  double value = std::ldexp(1.0 + fraction * scale, exponent - bias);
  if (exponent == 0) value = std::ldexp(fraction * scale, 1 - bias);
  if (exponent == (1 << exponent_bits) - 1) value = fraction == 0 ? std::numeric_limits<double>::infinity() : NAN;
  return (bits & 0x8000U) != 0 ? -value : value;
}

template <class Half>
struct Form;
template <>
struct Form<Float16> {
  static constexpr int kExponentBits = 5;
  static constexpr int kFractionBits = 10;
};
template <>
struct Form<BFloat16> {
  static constexpr int kExponentBits = 8;
  static constexpr int kFractionBits = 7;
};

template <class Half>
double defined(std::uint32_t bits) {
  return defined_value(bits, Form<Half>::kExponentBits, Form<Half>::kFractionBits);
}

template <class Half>
class Halves : public testing::Test {};
using BothHalves = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(Halves, BothHalves);

TYPED_TEST(Halves, every_bit_pattern_converts_to_float_and_back) {
  for (std::uint32_t bits = 0; bits < kPatterns; ++bits) {
    const auto half = TypeParam::from_bits(static_cast<std::uint16_t>(bits));
    const auto value = static_cast<float>(half);
    const double expected = defined<TypeParam>(bits);
    ASSERT_EQ(std::isnan(value), std::isnan(expected)) << bits;
    if (!std::isnan(expected)) {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
    }
    ASSERT_EQ(std::signbit(value), (bits & 0x8000U) != 0) << bits;
    ASSERT_EQ(TypeParam(value).bits(), bits);
  }
}

// All finite values, from the largest; the bits of neighbours differ by one.
template <class Half>
std::uint32_t first_infinite() {
  return ((1U << static_cast<unsigned>(Form<Half>::kExponentBits)) - 1)
         << static_cast<unsigned>(Form<Half>::kFractionBits);
}

// Between two neighbours the nearer one wins, and in the middle the even one.
TYPED_TEST(Halves, values_between_neighbours_round_to_the_nearer) {
  const std::uint32_t infinite = first_infinite<TypeParam>();
  for (std::uint32_t bits = 0; bits + 1 < infinite; ++bits) {
    const double low = defined<TypeParam>(bits);
    const double high = defined<TypeParam>(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    ASSERT_EQ(TypeParam(middle).bits(), even);
    ASSERT_EQ(TypeParam(-middle).bits(), even | 0x8000U);
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0F)).bits(), bits);
    ASSERT_EQ(TypeParam(std::nextafter(middle, kHalfInfinity)).bits(), bits + 1);
    ASSERT_EQ(TypeParam(std::nextafter(-middle, -kHalfInfinity)).bits(), (bits + 1) | 0x8000U);
  }
}

// By definition: no other pattern is nearer, and of two equally near ones the result is even.
TYPED_TEST(Halves, random_floats_round_to_nearest) {
  const std::uint32_t infinite = first_infinite<TypeParam>();
  std::mt19937 random(7);
  for (int i = 0; i < 300'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    const std::uint32_t bits = TypeParam(value).bits() & 0x7fffU;
    ASSERT_EQ(std::signbit(value), (TypeParam(value).bits() & 0x8000U) != 0);
    const double size = std::abs(static_cast<double>(value));
    if (bits == infinite) {
      const double greatest = defined<TypeParam>(infinite - 1);
      ASSERT_GE(size, greatest + (greatest - defined<TypeParam>(infinite - 2)) / 2) << value;
      continue;
    }
    const double wrong = std::abs(size - defined<TypeParam>(bits));
    const bool is_even = bits % 2 == 0;
    for (const std::uint32_t other : {bits - 1, bits + 1}) {
      if (other >= infinite) continue;
      const double other_wrong = std::abs(size - defined<TypeParam>(other));
      ASSERT_TRUE(wrong < other_wrong || (wrong == other_wrong && is_even)) << value;
    }
  }
}

TYPED_TEST(Halves, infinities_and_nan_are_preserved) {
  EXPECT_EQ(static_cast<float>(TypeParam(kHalfInfinity)), kHalfInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(-kHalfInfinity)), -kHalfInfinity);
  for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    const auto nan = static_cast<float>(TypeParam(std::bit_cast<float>(bits)));
    EXPECT_TRUE(std::isnan(nan)) << bits;
    EXPECT_EQ(std::signbit(nan), bits >> 31U != 0) << bits;
  }
}

TYPED_TEST(Halves, comparison_is_numeric) {
  const auto nan = TypeParam(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(nan == nan);
  EXPECT_TRUE(TypeParam(0.0F) == TypeParam(-0.0F));
  EXPECT_TRUE(TypeParam(1.5F) == TypeParam(1.5F));
  EXPECT_FALSE(TypeParam(1.5F) == TypeParam(1.0F));
  EXPECT_EQ(TypeParam().bits(), 0);
}

TEST(Float16, limits_match_the_definition) {
  EXPECT_EQ(Float16(65504.0F).bits(), 0x7bff);
  EXPECT_EQ(Float16(65519.996F).bits(), 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits(), 0x7c00);
  EXPECT_EQ(Float16(1e30F).bits(), 0x7c00);
  EXPECT_EQ(Float16(0x1p-24F).bits(), 1);
  EXPECT_EQ(Float16(0x1p-25F).bits(), 0);
  EXPECT_EQ(Float16(0x1.000002p-25F).bits(), 1);
  EXPECT_EQ(Float16(-0x1p-26F).bits(), 0x8000);
  EXPECT_EQ(Float16(std::numeric_limits<float>::denorm_min()).bits(), 0);
  static_assert(Float16(1.0F).bits() == 0x3c00);
}

TEST(BFloat16, limits_match_the_definition) {
  EXPECT_EQ(BFloat16(1.0F).bits(), 0x3f80);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits(), 0x7f80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x7f7f7fffU)).bits(), 0x7f7f);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x7f7f8000U)).bits(), 0x7f80);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::denorm_min()).bits(), 0);
  EXPECT_EQ(static_cast<float>(BFloat16::from_bits(1)), 0x1p-133F);
}

}  // namespace
}  // namespace drover::tensor
