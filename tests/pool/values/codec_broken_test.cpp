// Corrupt input: always an error, and never a large allocation.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/pool/codec.hpp"
#include "pool/values/codec_support.hpp"
#include "support/expect_error.hpp"

namespace drover::pool {
namespace {

using test::bytes_of;
using test::expect_error;
using test::raw;
using test::read_all;
using test::written;

struct Record {
  std::string name;
  std::vector<std::optional<int>> numbers;
  std::map<int, bool> flags;
};
const Record record{.name = "abc", .numbers = {1, std::nullopt, 70'000}, .flags = {{-1, true}, {300, false}}};

template <class Type>
void expect_corrupt(const std::string& bytes) {
  expect_error(Errc::corrupt, [&] { static_cast<void>(read_all<Type>(bytes)); }, {"same program"});
}

TEST(CodecBroken, another_type_is_corrupt) {
  const std::vector<std::string> all = {written(true),
                                        written(-5),
                                        written(2.5),
                                        written(std::string("text")),
                                        written(std::vector{1, 2}),
                                        written(std::vector<std::string>{"a"}),
                                        written(std::map<int, int>{{1, 2}}),
                                        raw({0xc0}),
                                        raw({0xc1}),
                                        raw({0xd6, 1, 0, 0, 0, 0})};
  const auto expect_only = [&]<class Type>(const Type* /*type*/, std::size_t right) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i != right) expect_corrupt<Type>(all[i]);
    }
  };
  expect_only(static_cast<const bool*>(nullptr), 0);
  expect_only(static_cast<const int*>(nullptr), 1);
  expect_only(static_cast<const std::string*>(nullptr), 3);
  expect_only(static_cast<const std::vector<int>*>(nullptr), 4);
  expect_only(static_cast<const std::vector<std::string>*>(nullptr), 5);
  expect_only(static_cast<const std::map<int, int>*>(nullptr), 6);
  expect_only(static_cast<const Tensor*>(nullptr), all.size());
}

TEST(CodecBroken, truncated_input_is_corrupt) {
  const std::string whole = written(record);
  for (std::size_t length = 0; length < whole.size(); ++length) expect_corrupt<Record>(whole.substr(0, length));
  EXPECT_EQ(read_all<Record>(whole).numbers, record.numbers);
}

TEST(CodecBroken, trailing_bytes_are_corrupt) { expect_corrupt<Record>(written(record) + '\0'); }

TEST(CodecBroken, every_changed_byte_gives_a_value_or_is_corrupt) {
  const std::string whole = written(record);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string changed = whole;
      changed[at] = static_cast<char>(byte);
      try {
        static_cast<void>(read_all<Record>(changed));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::corrupt);
      }
      EXPECT_LE(describe_values(bytes_of(changed), {}).size(), 220U);
    }
  }
}

TEST(CodecBroken, counts_beyond_the_bytes_are_corrupt) {
  const std::string huge = raw({0xff, 0xff, 0xff, 0xff});
  expect_corrupt<std::vector<std::string>>(raw({0xdd}) + huge + raw({0xa0, 0xa0}));
  expect_corrupt<std::vector<std::string>>(raw({0xdc, 0xff, 0xff}));
  expect_corrupt<std::map<int, int>>(raw({0xdf}) + huge + raw({1, 2}));
  expect_corrupt<std::string>(raw({0xdb}) + huge + "abc");
  expect_corrupt<std::vector<int>>(raw({0xc6}) + huge + "abc");
  const std::string two_pairs = raw({0x82, 1, 2, 3});
  Decoder from(bytes_of(two_pairs));
  expect_error(Errc::corrupt, [&] { static_cast<void>(from.read_map()); });
}

TEST(CodecBroken, numbers_that_are_not_whole_are_corrupt) {
  expect_corrupt<std::vector<int>>(raw({0xc4, 3, 1, 2, 3}));
  expect_corrupt<std::vector<double>>(raw({0xc4, 7, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(read_all<std::vector<std::int16_t>>(raw({0xc4, 2, 1, 1})), (std::vector<std::int16_t>{257}));
}

TEST(CodecBroken, a_missing_tensor_is_corrupt) {
  const test::OwnMemory own;
  const std::vector<Tensor> tensors{zeros(own.memory(), DType::int8, {1})};
  EXPECT_TRUE(read_all<Tensor>(raw({0xd6, 1, 0, 0, 0, 0}), tensors).is_open());
  expect_error(Errc::corrupt, [&] { static_cast<void>(read_all<Tensor>(raw({0xd6, 1, 0, 0, 0, 1}), tensors)); });
  expect_error(Errc::corrupt,
               [&] { static_cast<void>(read_all<Tensor>(raw({0xd6, 1, 255, 255, 255, 255}), tensors)); });
  expect_error(Errc::corrupt, [&] { static_cast<void>(read_all<Tensor>(raw({0xd6, 2, 0, 0, 0, 0}), tensors)); });
}

// The count would need more memory than a machine has.
TEST(CodecBroken, a_false_count_takes_no_memory) {
  struct Large {
    std::array<double, 8192> numbers{};
  };
  expect_corrupt<std::vector<Large>>(raw({0xdd, 0, 0x3f, 0xff, 0xff}) + std::string(1U << 22U, '\xc0'));
}

}  // namespace
}  // namespace drover::pool
