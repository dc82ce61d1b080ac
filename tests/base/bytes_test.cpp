#include "drover/base/bytes.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace drover {
namespace {

constexpr std::uint64_t kTiB = 1024 * kGiB;

// A fixed seed, so that a failure can be reproduced.
std::mt19937_64 random_numbers(std::uint64_t seed) { return std::mt19937_64(seed); }

TEST(FormatBytes, size_has_one_decimal_and_a_binary_unit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(kKiB), "1.0 KiB");
  EXPECT_EQ(format_bytes(64 * kMiB), "64.0 MiB");
  EXPECT_EQ(format_bytes(3 * kGiB / 2), "1.5 GiB");
  EXPECT_EQ(format_bytes(5 * kTiB), "5.0 TiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16777216.0 TiB");
}

TEST(FormatBytes, size_just_below_a_unit_is_rounded_up_to_it) {
  EXPECT_EQ(format_bytes(kMiB - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(kGiB - 1), "1.0 GiB");
  EXPECT_EQ(format_bytes(kTiB - 1), "1.0 TiB");
}

TEST(ParseBytes, numbers_with_and_without_units_are_read) {
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("64MiB"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("64 mib"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 3 * kGiB / 2);
  EXPECT_EQ(parse_bytes("2G"), 2 * kGiB);
  EXPECT_EQ(parse_bytes("2GB"), 2 * kGiB);
  EXPECT_EQ(parse_bytes("1T"), kTiB);
  EXPECT_EQ(parse_bytes("7 B"), 7U);
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes(".5K"), 512U);
  EXPECT_EQ(parse_bytes("8 "), 8U);
}

TEST(ParseBytes, anything_else_is_rejected) {
  for (const char* const text : {"", " ", "MiB", "-1", "+1", " 1", "1e3", "0x10", "1.2.3", ".", "1 2", "1XB", "1KiBx",
                                 "1iB", "1 K i B", "1P", "inf", "nan", "1,5G"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_bytes(std::string_view("64\0K", 4)), std::nullopt);
}

TEST(ParseBytes, size_above_64_bits_is_rejected) {
  EXPECT_EQ(parse_bytes("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_bytes("18446744073709551616"), std::nullopt);
  EXPECT_EQ(parse_bytes("16777215T"), 16777215 * kTiB);
  EXPECT_EQ(parse_bytes("16777216T"), std::nullopt);
  EXPECT_EQ(parse_bytes("16777216.5T"), std::nullopt);
  EXPECT_EQ(parse_bytes(std::string(400, '9')), std::nullopt);
}

TEST(ParseBytes, whole_numbers_are_exact) {
  EXPECT_EQ(parse_bytes("9007199254740993"), 9007199254740993U);
  auto random = random_numbers(1);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t value = random() >> (random() % 64U);
    ASSERT_EQ(parse_bytes(std::to_string(value)), value);
    ASSERT_EQ(parse_bytes(std::to_string(value) + "b"), value);
  }
}

TEST(ParseBytes, whole_numbers_of_units_are_exact) {
  auto random = random_numbers(2);
  constexpr std::array kUnits = {"", "K", "MiB", "gb", " TiB"};
  for (int i = 0; i < 2000; ++i) {
    const std::size_t unit = random() % kUnits.size();
    const std::uint64_t value = random() % (1U << 20U);
    ASSERT_EQ(parse_bytes(std::to_string(value) + kUnits.at(unit)), value << (10 * unit)) << value << kUnits.at(unit);
  }
}

TEST(ParseBytes, formatted_size_parses_back_within_rounding) {
  auto random = random_numbers(3);
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t value = random() >> (1 + random() % 63U);
    const auto text = format_bytes(value);
    const auto back = parse_bytes(text);
    ASSERT_TRUE(back.has_value()) << text;
    const auto wrong = std::abs(static_cast<double>(*back) - static_cast<double>(value));
    ASSERT_LE(wrong, 0.051 * static_cast<double>(value) + 1.0) << value << " became " << text;
    ASSERT_TRUE(value >= 1024 * kTiB || !text.starts_with("1024.0 ")) << value << " became " << text;
  }
}

TEST(ParseBytes, random_text_is_handled) {
  auto random = random_numbers(4);
  const std::string alphabet = "0123456789.kKmMgGtTiIbB -+exX";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto length = random() % 12U; length > 0; --length) text += alphabet[random() % alphabet.size()];
    if (const auto value = parse_bytes(text)) {
      ASSERT_TRUE(text[0] == '.' || (text[0] >= '0' && text[0] <= '9')) << text << " became " << *value;
    }
  }
}

}  // namespace
}  // namespace drover
