// Plain structs as arguments: fields of all types arrive.
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "drover/pool/codec.hpp"
#include "drover/pool/task.hpp"
#include "pool/values/codec_support.hpp"
#include "support/expect_error.hpp"

namespace drover::pool {
namespace {

using test::expect_error;
using test::read_all;
using test::sent;
using test::written;

struct OneNumber {
  int value = 0;
  bool operator==(const OneNumber&) const = default;
};
struct OneList {
  std::vector<int> values;
  bool operator==(const OneList&) const = default;
};
struct OneText {
  std::string text;
  bool operator==(const OneText&) const = default;
};
struct OneOptional {
  std::optional<std::string> text;
  bool operator==(const OneOptional&) const = default;
};
struct OneArray {
  std::array<int, 4> values{};
  bool operator==(const OneArray&) const = default;
};
struct OneMap {
  std::map<std::string, OneList> lists;
  bool operator==(const OneMap&) const = default;
};
struct OneStruct {
  OneArray inner;
  bool operator==(const OneStruct&) const = default;
};
struct Mixed {
  OneArray array;
  std::array<OneText, 2> texts;
  std::optional<OneNumber> maybe;
  std::tuple<int, OneList> tuple;
  std::optional<std::array<int, 2>> maybe_array;
  OneStruct deep;
  bool operator==(const Mixed&) const = default;
};
struct Sixteen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o;
  std::string p;
  bool operator==(const Sixteen&) const = default;
};
struct Seventeen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
struct WithBase : OneNumber {
  int more = 0;
};
struct WithEmptyBase : std::vector<int> {
  int more = 0;
};
struct Nothing {};
struct Tree {
  std::string label;
  std::vector<Tree> branches;
  bool operator==(const Tree&) const = default;
};
struct WithTensor {
  Tensor tensor;
  std::optional<Tensor> other;
};
struct NotMovableTwice {
  std::string text;
  NotMovableTwice(const NotMovableTwice&) = default;
};

static_assert(detail::count_fields<OneList>() == 1 && detail::count_fields<OneText>() == 1);
static_assert(detail::count_fields<OneOptional>() == 1 && detail::count_fields<OneArray>() == 1);
static_assert(detail::count_fields<Mixed>() == 6 && detail::count_fields<Sixteen>() == 16);
static_assert(detail::count_fields<WithTensor>() == 2 && detail::count_fields<Tree>() == 2);
static_assert(Codable<Sixteen> && !Codable<Seventeen> && !Codable<Nothing> && !Codable<NotMovableTwice>);
static_assert(!Codable<WithBase> && !Codable<WithEmptyBase>);
static_assert(!Codable<int*> && !Codable<const char*> && !Codable<long double>);
static_assert(!Codable<std::vector<int*>> && !Codable<std::map<int, std::optional<int*>>> &&
              !Codable<std::tuple<int*>>);

TEST(CodecStruct, a_single_field_of_any_kind_arrives) {
  EXPECT_EQ(sent(OneNumber{7}), OneNumber{7});
  EXPECT_EQ(sent(OneList{{1, 2, 3}}), (OneList{{1, 2, 3}}));
  EXPECT_EQ(sent(OneText{"abc"}), OneText{"abc"});
  EXPECT_EQ(sent(OneOptional{"x"}), OneOptional{"x"});
  EXPECT_EQ(sent(OneOptional{}), OneOptional{});
  EXPECT_EQ(sent(OneArray{{1, 2, 3, 4}}), (OneArray{{1, 2, 3, 4}}));
  EXPECT_EQ(sent(OneMap{{{"a", {{1}}}, {"b", {}}}}), (OneMap{{{"a", {{1}}}, {"b", {}}}}));
  EXPECT_EQ(sent(OneStruct{{{4, 3, 2, 1}}}), (OneStruct{{{4, 3, 2, 1}}}));
}

TEST(CodecStruct, fields_that_are_structs_and_containers_arrive) {
  const Mixed mixed{.array = {{1, 2, 3, 4}},
                    .texts = {OneText{"a"}, OneText{"b"}},
                    .maybe = OneNumber{5},
                    .tuple = {6, OneList{{7}}},
                    .maybe_array = std::array{8, 9},
                    .deep = {{{1, 0, 1, 0}}}};
  EXPECT_EQ(sent(mixed), mixed);
  EXPECT_EQ(sent(Mixed{}), Mixed{});
  const std::map<int, std::vector<Mixed>> map{{1, {mixed, {}}}, {2, {}}};
  EXPECT_EQ(sent(map), map);
}

TEST(CodecStruct, sixteen_fields_arrive_in_their_order) {
  const Sixteen all{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, "sixteen"};
  EXPECT_EQ(sent(all), all);
}

TEST(CodecStruct, a_struct_of_itself_arrives) {
  const Tree tree{.label = "root", .branches = {{.label = "a", .branches = {{"b", {}}}}, {"c", {}}}};
  EXPECT_EQ(sent(tree), tree);
}

TEST(CodecStruct, its_name_lists_its_fields) {
  EXPECT_EQ(Codec<OneNumber>::name(), "{int32}");
  EXPECT_EQ(Codec<Mixed>::name(),
            "{{array<int32,4>},array<{string},2>,optional<{int32}>,tuple<int32,{list<int32>}>,"
            "optional<array<int32,2>>,{{array<int32,4>}}}");
  EXPECT_EQ(Codec<WithTensor>::name(), "{tensor,optional<tensor>}");
}

TEST(CodecStruct, another_number_of_fields_is_corrupt) {
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<OneNumber>(written(std::tuple(1, 2)))); });
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<OneNumber>(written(std::tuple<>()))); });
  expect_error(Errc::corrupt, [] { static_cast<void>(read_all<OneNumber>(written(1))); });
}

TEST(CodecStruct, tensors_in_fields_arrive) {
  const test::OwnMemory own;
  Encoder to;
  Codec<WithTensor>::write(to, {arange(own.memory(), DType::int64, 0, 4), std::nullopt});
  const auto read = read_all<WithTensor>(to.bytes(), to.tensors());
  EXPECT_EQ(sum(read.tensor), 6);
  EXPECT_FALSE(read.other.has_value());
}

}  // namespace
}  // namespace drover::pool
