// Arrays as bytes: round trips, and bytes built from the definition of the format.
#include "drover/tensor/serialize.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;
using namespace std::string_literals;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Short strings, numbers and lists in MessagePack.
std::string str(std::string_view text) {
  return (text.size() < 32 ? std::string(1, static_cast<char>(0xa0U + text.size()))
                           : "\xd9"s + static_cast<char>(text.size())) +
         std::string(text);
}
std::string number(std::uint64_t value) {
  if (value < 128) return std::string(1, static_cast<char>(value));
  std::string text = "\xcf";
  for (int shift = 56; shift >= 0; shift -= 8)
    text += static_cast<char>((value >> static_cast<unsigned>(shift)) & 255U);
  return text;
}
std::string map_of(std::size_t entries) { return std::string(1, static_cast<char>(0x80U + entries)); }
std::string list_of(const std::vector<std::string>& items) {
  std::string text(1, static_cast<char>(0x90U + items.size()));
  for (const auto& item : items) text += item;
  return text;
}

// An array's entry, of which tests corrupt a field.
struct Entry {
  std::string name = str("a");
  std::string dtype = str("uint8");
  std::string shape = list_of({number(3)});
  std::string offset = number(0);
  std::string bytes = number(3);
  [[nodiscard]] std::string text() const {
    return map_of(5) + str("name") + name + str("dtype") + dtype + str("shape") + shape + str("offset") + offset +
           str("bytes") + bytes;
  }
};

struct Header {
  std::string order = str("little");
  std::string alignment = number(64);
  std::vector<std::string> arrays = {Entry{}.text()};
  [[nodiscard]] std::string text() const {
    return map_of(3) + str("order") + order + str("alignment") + alignment + str("arrays") + list_of(arrays);
  }
};

std::string frame(const std::string& header, const std::string& data = "xyz", char version = 1) {
  std::string text =
      "\x89"
      "DROVER\n"s +
      version + "\0\0\0"s;
  for (unsigned shift = 0; shift < 32; shift += 8) text += static_cast<char>((header.size() >> shift) & 255U);
  text += header;
  text.resize((text.size() + 63) / 64 * 64);
  return text + data;
}

void expect_all_refused(Errc code, const std::string& text, const std::vector<std::string>& parts) {
  SCOPED_TRACE(testing::PrintToString(text));
  expect_error(code, [&] { static_cast<void>(parse_serialized(bytes_of(text))); }, parts);
}
void expect_corrupt(const Entry& entry, const std::vector<std::string>& parts) {
  expect_all_refused(Errc::corrupt, frame(Header{.arrays = {entry.text()}}.text()), parts);
}

std::vector<std::byte> counted(std::size_t bytes) {
  std::vector<std::byte> memory(bytes);
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i);
  return memory;
}

TEST(Serialize, bytes_match_the_documented_format) {
  const auto memory = counted(6);
  const auto layout = TensorLayout::contiguous(DType::int16, {3, 1});
  const auto bytes = serialize(std::array{NamedArray{.name = "a", .layout = layout, .memory = memory}});
  // The writer uses the shortest encoding of numbers.
  const Entry entry{.dtype = str("int16"), .shape = list_of({number(3), number(1)}), .bytes = number(6)};
  EXPECT_EQ(text_of(bytes), frame(Header{.arrays = {entry.text()}}.text(), text_of(memory)));
}

TEST(Serialize, every_type_and_shape_round_trips) {
  for (const DType dtype : kAllDTypes) {
    for (const auto& shape : {std::vector<std::int64_t>{}, {7}, {0}, {2, 3}, {3, 0, 2}, {1, 1, 1, 1, 1, 1, 1, 2}}) {
      const auto layout = TensorLayout::contiguous(dtype, shape);
      const auto memory = counted(layout.bytes());
      const auto bytes = serialize(std::array{NamedArray{.name = "", .layout = layout, .memory = memory}});
      const auto arrays = parse_serialized(bytes);
      ASSERT_EQ(arrays.size(), 1U);
      EXPECT_EQ(arrays[0].name, "");
      EXPECT_EQ(arrays[0].layout, layout);
      EXPECT_TRUE(std::ranges::equal(arrays[0].memory, memory));
    }
  }
}

TEST(Serialize, several_arrays_are_read_in_order_aligned_and_without_a_copy) {
  const auto memory = counted(1000);
  std::vector<NamedArray> written;
  for (const std::int64_t size : {1, 64, 65, 0, 100}) {
    written.push_back({.name = fmt::format("array {}", size),
                       .layout = TensorLayout::contiguous(DType::float64, {size}),
                       .memory = memory});
  }
  const auto bytes = serialize(written);
  EXPECT_EQ(bytes.size(), serialized_bytes(written));
  const auto read = parse_serialized(bytes);
  ASSERT_EQ(read.size(), written.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].name, written[i].name);
    EXPECT_EQ(read[i].layout, written[i].layout);
    EXPECT_TRUE(std::ranges::equal(read[i].memory, std::span(memory).first(written[i].layout.bytes())));
    const auto at = read[i].memory.data() - bytes.data();
    EXPECT_EQ(at % 64, 0);
    EXPECT_LE(static_cast<std::size_t>(at) + read[i].memory.size(), bytes.size());
  }
  EXPECT_TRUE(parse_serialized(serialize({})).empty()) << "no arrays are valid too";
}

TEST(Serialize, elements_are_written_in_row_major_order) {
  const auto memory = counted(24);
  const auto whole = TensorLayout::contiguous(DType::uint8, {4, 6});
  const std::array arrays = {
      NamedArray{.name = "columns", .layout = whole.transpose(0, 1), .memory = memory},
      NamedArray{.name = "part", .layout = whole.slice(0, 1, 3).slice(1, 1, 6, 2), .memory = memory},
      NamedArray{.name = "row", .layout = whole.select(0, 2), .memory = memory},
      NamedArray{.name = "repeated", .layout = whole.select(0, 0).slice(0, 5).expand({3}), .memory = memory}};
  const auto bytes = serialize(arrays);
  const auto read = parse_serialized(bytes);
  EXPECT_EQ(read.at(0).layout, TensorLayout::contiguous(DType::uint8, {6, 4}));
  EXPECT_EQ(text_of(read.at(0).memory.first(8)), "\x00\x06\x0c\x12\x01\x07\x0d\x13"s);
  EXPECT_EQ(text_of(read.at(1).memory), "\x07\x09\x0b\x0d\x0f\x11"s);
  EXPECT_EQ(text_of(read.at(2).memory), "\x0c\x0d\x0e\x0f\x10\x11"s);
  EXPECT_EQ(text_of(read.at(3).memory), "\x05\x05\x05"s);
}

TEST(Serialize, output_is_deterministic) {
  const auto memory = counted(10);
  const auto layout = TensorLayout::contiguous(DType::uint8, {10});
  const std::array arrays = {NamedArray{.name = "a", .layout = layout, .memory = memory},
                             NamedArray{.name = "b", .layout = layout, .memory = memory}};
  const auto bytes = serialize(arrays);
  const auto between = std::span(bytes).last(64).first(54);  // the second array has the last 10 bytes
  EXPECT_TRUE(std::ranges::all_of(between, [](auto byte) { return byte == std::byte{0}; }));
  std::vector<std::byte> room(bytes.size() + 5, std::byte{0xee});
  EXPECT_EQ(serialize(room, arrays), bytes.size());
  EXPECT_TRUE(std::ranges::equal(bytes, std::span(room).first(bytes.size())));
  EXPECT_TRUE(std::ranges::all_of(std::span(room).last(5), [](auto byte) { return byte == std::byte{0xee}; }));
  EXPECT_EQ(parse_serialized(room).size(), 2U) << "bytes after the data are ignored";
}

TEST(Serialize, invalid_arrays_throw) {
  const auto memory = counted(10);
  const auto layout = TensorLayout::contiguous(DType::uint8, {10});
  const NamedArray array{.name = "a", .layout = layout, .memory = memory};
  const auto expect_wrong = [](std::vector<NamedArray> arrays, const std::vector<std::string>& parts) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(serialize(arrays)); }, parts);
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(serialized_bytes(arrays)); }, parts);
  };
  expect_wrong({array, array}, {"two arrays", "'a'", "a unique name"});
  expect_wrong({{.name = "a", .layout = layout, .memory = std::span(memory).first(9)}}, {"uint8[10]"});
  expect_wrong({{.name = std::string(256, 'n'), .layout = layout, .memory = memory}},
               {"256 bytes", "maximum is 255"});
  expect_wrong(std::vector(16'385, array), {"16385 arrays", "several parts"});
  const auto huge = TensorLayout::contiguous(DType::uint8, {1}).expand({std::int64_t{1} << 62});
  expect_wrong({{.name = "huge", .layout = huge, .memory = memory}, array}, {"2^62"});
  std::vector<std::byte> room(serialized_bytes(std::array{array}) - 1);
  expect_error(Errc::invalid_argument, [&] { serialize(room, std::array{array}); }, {"room for", "serialized_bytes"});
}

TEST(Serialize, arrays_larger_than_memory_throw) {
  if (test::kIsSanitized) GTEST_SKIP() << "sanitizers abort on allocations of this size";
  const auto memory = counted(10);
  const auto huge = TensorLayout::contiguous(DType::uint8, {1}).expand({std::int64_t{1} << 62});
  const std::array arrays{NamedArray{.name = "a", .layout = huge, .memory = memory}};
  expect_error(Errc::out_of_memory, [&] { static_cast<void>(serialize(arrays)); }, {"fewer arrays"});
}

TEST(Serialize, the_maximum_number_of_arrays_round_trips) {
  std::vector<NamedArray> arrays;
  for (std::size_t i = 0; i < kMostSerializedArrays; ++i) {
    arrays.push_back({.name = fmt::format("{:0>255}", i),
                      .layout = TensorLayout::contiguous(DType::complex128, {1, 0, 1 << 30, 1, 1, 1, 1, 1 << 25})});
  }
  const auto bytes = serialize(arrays);
  const auto read = parse_serialized(bytes);
  EXPECT_EQ(read.size(), kMostSerializedArrays);
  EXPECT_EQ(read.back().name, arrays.back().name);
}

TEST(SerializeParse, header_entries_may_be_in_any_order) {
  const auto text = map_of(3) + str("arrays") + list_of({Entry{}.text()}) + str("order") + str("little") +
                    str("alignment") + number(64);
  const auto file = frame(text);
  EXPECT_EQ(text_of(parse_serialized(bytes_of(file)).at(0).memory), "xyz");
}

TEST(SerializeParse, newer_versions_are_unsupported) {
  expect_all_refused(Errc::unsupported, frame("what comes in two years", "", 2), {"version 2", "a later one"});
  expect_all_refused(Errc::corrupt, frame(Header{}.text(), "xyz", 0), {"version 0"});
  expect_all_refused(Errc::unsupported, frame(Header{.order = str("big")}.text()), {"big-endian"});
}

TEST(SerializeParse, wrong_magic_bytes_are_corrupt) {
  expect_all_refused(Errc::corrupt, "", {"do not begin"});
  expect_all_refused(Errc::corrupt, "\x93NUMPY\x01 and so on", {"do not begin"});
  auto file = frame(Header{}.text());
  file[15] = '\x7f';
  expect_all_refused(Errc::corrupt, file, {"a header of 21307"});
}

TEST(SerializeParse, truncated_bytes_are_corrupt) {
  const auto file = frame(Header{}.text());
  ASSERT_EQ(parse_serialized(bytes_of(file)).size(), 1U);
  for (std::size_t size = 1; size < file.size(); ++size)
    expect_all_refused(Errc::corrupt, file.substr(0, size), {"truncated"});
}

TEST(SerializeParse, malformed_headers_are_corrupt) {
  const auto expect_header = [](const Header& header, const std::vector<std::string>& parts) {
    expect_all_refused(Errc::corrupt, frame(header.text()), parts);
  };
  expect_header({.order = str("middle")}, {"unknown byte order"});
  expect_header({.order = number(1)}, {"'order' that is not a string"});
  expect_header({.alignment = number(128)}, {"alignment other than 64"});
  expect_header({.alignment = str("64")}, {"'alignment' that is not a number"});
  expect_header({.arrays = {number(1)}}, {"a map of 5 entries"});
  expect_header({.arrays = {Entry{}.text(), Entry{.offset = number(64), .bytes = number(3)}.text()}}, {"truncated"});
  const auto text = Header{}.text();
  expect_all_refused(Errc::corrupt, frame(text + "\x01"), {"extra bytes after"});
  expect_all_refused(Errc::corrupt, frame(""), {"broken"});
  expect_all_refused(Errc::corrupt, frame("\xc1"), {"broken"});
  expect_all_refused(Errc::corrupt, frame(list_of({})), {"a map of 3"});
  expect_all_refused(Errc::corrupt, frame(map_of(2) + text.substr(1, 6 + 7) + str("alignment") + number(64)),
                     {"a map of 3"});
  const auto twice = map_of(3) + str("order") + str("little") + str("order") + str("little") + str("arrays") + "\x90";
  expect_all_refused(Errc::corrupt, frame(twice), {"lack the entry 'alignment'"});
  expect_all_refused(Errc::corrupt, frame(map_of(3) + number(1) + number(2) + text.substr(1)), {"extra bytes after"});
}

TEST(SerializeParse, nesting_and_counts_are_bounded) {
  expect_all_refused(Errc::corrupt, frame(std::string(100'000, '\x91') + "\x90"), {"broken"});
  expect_all_refused(Errc::corrupt, frame("\xdd\xff\xff\xff\xff"s), {"broken"});
  expect_all_refused(Errc::corrupt, frame("\xdf\xff\xff\xff\xff"s), {"broken"});
  expect_all_refused(Errc::corrupt, frame("\xdb\xff\xff\xff\xff"s), {"broken"});
  expect_all_refused(Errc::corrupt, frame("\xc6\x00\x00\x00\x01z"s), {"broken"});
  const std::string name(256, 'n');
  expect_corrupt({.name = "\xda\x01\x00"s + name}, {"broken"});
}

TEST(SerializeParse, impossible_arrays_are_corrupt) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  expect_corrupt({.name = number(3)}, {"'name' that is not a string"});
  expect_corrupt({.dtype = str("float8")}, {"impossible layout", "float8"});
  expect_corrupt({.dtype = number(6)}, {"'dtype' that is not a string"});
  expect_corrupt({.shape = number(3)}, {"'shape' that is not a list"});
  expect_corrupt({.shape = list_of({str("3")})}, {"'size' that is not a number"});
  expect_corrupt({.shape = list_of({"\xff"s})}, {"'size' that is not a number"});
  expect_corrupt({.shape = list_of(std::vector(9, number(1)))}, {"9 dimensions", "maximum is 8"});
  expect_corrupt({.shape = list_of({number(kMost)})}, {"a size of 18446744073709551615"});
  expect_corrupt({.shape = list_of({number(1ULL << 40U), number(1ULL << 40U)})}, {"impossible layout"});
  expect_corrupt({.bytes = number(2)}, {"claim 2 bytes for uint8[3]"});
  expect_corrupt({.bytes = str("3")}, {"'bytes' that is not a number"});
  expect_corrupt({.offset = number(1)}, {"invalid offset 1"});
  expect_corrupt({.offset = number(64)}, {"truncated"});
  expect_corrupt({.offset = number(kMost - 63)}, {"invalid offset"});
  expect_corrupt({.offset = "\xd0\x80"s}, {"'offset' that is not a number"});
  const auto huge = 1ULL << 62U;
  expect_corrupt({.shape = list_of({number(huge)}), .bytes = number(huge)}, {"truncated"});
}

TEST(SerializeParse, arrays_that_overlap_or_share_a_name_are_corrupt) {
  const auto data = std::string(200, 'x');
  const auto file = [&](const Entry& second) {
    return frame(Header{.arrays = {Entry{}.text(), second.text()}}.text(), data);
  };
  expect_all_refused(Errc::corrupt, file({.name = str("b")}), {"invalid offset 0"});
  expect_all_refused(Errc::corrupt, file({.name = str("a"), .offset = number(64)}), {"two arrays of the same name"});
  const auto right = file({.name = str("b"), .offset = number(128)});
  EXPECT_EQ(parse_serialized(bytes_of(right)).at(1).memory.size(), 3U);
}

// Any changed byte gives an intended error, or arrays within the bytes.
TEST(SerializeParse, changing_any_byte_is_safe) {
  auto file = frame(Header{.arrays = {Entry{}.text(), Entry{.name = str("b"), .offset = number(64)}.text()}}.text(),
                    std::string(80, 'x'));
  int refused = 0;
  for (char& byte : file) {
    const char before = byte;
    for (int value = 0; value < 256; ++value) {
      byte = static_cast<char>(value);
      try {
        for (const auto& array : parse_serialized(bytes_of(file))) {
          ASSERT_GE(array.memory.data(), bytes_of(file).data());
          ASSERT_LE(array.memory.data() + array.memory.size(), bytes_of(file).data() + file.size());
        }
      } catch (const Error& error) {
        ++refused;
        ASSERT_TRUE(error.code() == Errc::corrupt || error.code() == Errc::unsupported) << error.what();
      }
    }
    byte = before;
  }
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace drover::tensor
