// Arguments as text.
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/pool/codec.hpp"
#include "pool/values/codec_support.hpp"

namespace drover::pool {
namespace {

using test::bytes_of;
using test::raw;
using test::written;

std::string described(const std::string& bytes, std::size_t most = 200) {
  return describe_values(bytes_of(bytes), {}, most);
}

TEST(DescribeValues, every_kind_is_shown) {
  EXPECT_EQ(described(""), "");
  EXPECT_EQ(described(written(true) + written(false)), "true, false");
  EXPECT_EQ(described(written(-5) + written(127) + written(-40'000)), "-5, 127, -40000");
  EXPECT_EQ(described(written(std::numeric_limits<std::uint64_t>::max())), "18446744073709551615");
  EXPECT_EQ(described(written(2.5) + raw({0xca, 0x3f, 0xc0, 0, 0})), "2.5, 1.5");
  EXPECT_EQ(described(written(std::numeric_limits<double>::infinity())), "inf");
  EXPECT_EQ(described(written(std::optional<int>())), "nothing");
  EXPECT_EQ(described(written(std::string("abc"))), "\"abc\"");
  EXPECT_EQ(described(written(std::vector<int>{1, 2})), "8 B of numbers");
  EXPECT_EQ(described(written(std::vector<std::string>{"a", "b"})), "[\"a\", \"b\"]");
  EXPECT_EQ(described(written(std::map<int, bool>{{1, true}, {2, false}})), "{1: true, 2: false}");
  EXPECT_EQ(described(written(std::vector<std::vector<std::string>>{{}, {"x"}})), "[[], [\"x\"]]");
}

TEST(DescribeValues, a_tensor_is_shown_by_its_layout_and_place) {
  const test::OwnMemory own;
  Encoder to;
  to.write(zeros(own.memory(), DType::float32, {2, 3}));
  EXPECT_EQ(describe_values(bytes_of(to.bytes()), to.tensors()), "tensor float32[2, 3] at cpu");
}

TEST(DescribeValues, values_after_a_long_list_are_shown) {
  const std::vector<std::optional<int>> many(20, 1);
  EXPECT_EQ(described(written(many) + written(7)), "[1, 1, 1, 1, 1, 1, 1, 1, ...], 7");
  std::map<int, std::vector<std::string>> map;
  for (int i = 0; i < 10; ++i) map[i] = {"x"};
  const auto text = described(written(map) + written(7));
  EXPECT_TRUE(text.ends_with("7: [\"x\"], ...}, 7")) << text;
}

TEST(DescribeValues, deeply_nested_values_are_skipped) {
  const auto text = described(std::string(20, '\x91') + raw({1}) + written(7));
  EXPECT_EQ(text, "[[[[[[[[...]]]]]]]], 7");
}

TEST(DescribeValues, long_texts_are_truncated) {
  EXPECT_EQ(described(written(std::string(100, 'x')), 20), "\"xxxxxxxxxx...\"");
  std::string many;
  for (int i = 0; i < 100; ++i) many += written(1);
  EXPECT_EQ(described(many, 10), "1, 1, 1, 1...");
  EXPECT_EQ(described(many, 0), "...");
}

TEST(DescribeValues, unprintable_characters_are_replaced) {
  EXPECT_EQ(described(written(std::string("a\x1b[2J\n\x7f\0b", 9))), "\"a?[2J???b\"");
}

TEST(DescribeValues, corrupt_bytes_are_shown_as_broken) {
  EXPECT_EQ(described(raw({0xc1})), "(broken)");
  EXPECT_EQ(described(written(3) + raw({0xa5, 'a'})), "3, (broken)");
  EXPECT_EQ(described(raw({0x93, 1, 2})), "(broken)");
  EXPECT_EQ(described(raw({0x92, 1, 0xc1})), "[1, (broken)");
  EXPECT_EQ(described(raw({0xd6, 1, 0, 0, 0, 0})), "(broken)");
  EXPECT_EQ(described(std::string(1U << 20U, '\x91')), "[[[[[[[[(broken)");
}

}  // namespace
}  // namespace drover::pool
