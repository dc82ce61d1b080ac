// Headers of .npy files, built from the definition of the format.
#include "drover/tensor/npy.hpp"

#include <algorithm>
#include <complex>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/tensor/tensor_layout.hpp"
#include "support/expect_error.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;
using namespace std::string_literals;

constexpr const char* kMatrix = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

// A file with this format version, dictionary and data.
std::string file_of(const std::string& dictionary, const std::string& data, char major = 1) {
  std::string text = "\x93NUMPY"s + major + '\0';
  std::size_t length = dictionary.size();
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i, length >>= 8U) text += static_cast<char>(length & 0xffU);
  return text + dictionary + data;
}

NpyHeader parse(const std::string& file) { return parse_npy(std::as_bytes(std::span(file))); }

std::string shown(const std::string& file) {
  const auto header = parse(file);
  return format_tensor(header.layout, std::as_bytes(std::span(file)).subspan(header.data_offset));
}

void expect_refused(Errc code, const std::string& file, const std::vector<std::string>& parts = {}) {
  SCOPED_TRACE(file);
  expect_error(code, [&] { static_cast<void>(parse(file)); }, parts);
}

// The file that numpy.save writes for arange(3, dtype='<i2'), byte by byte.
TEST(Npy, format_1_is_read) {
  const std::string file =
      "\x93NUMPY\x01\x00\x76\x00"
      "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }"s +
      std::string(60, ' ') + "\n" + "\x00\x00\x01\x00\x02\x00"s;
  const auto header = parse(file);
  EXPECT_EQ(header.layout, TensorLayout::contiguous(DType::int16, {3}));
  EXPECT_EQ(header.data_offset, 128U);
  EXPECT_EQ(shown(file), "[0, 1, 2]\nint16[3]");
}

TEST(Npy, formats_2_and_3_are_read) {
  for (const char major : {'\x02', '\x03'}) {
    const auto header = parse(file_of(kMatrix, std::string(24, '\0'), major));
    EXPECT_EQ(header.layout, TensorLayout::contiguous(DType::float32, {2, 3}));
    EXPECT_EQ(header.data_offset, 12 + std::strlen(kMatrix));
  }
}

TEST(Npy, fortran_order_sets_the_strides) {
  const auto file =
      file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", "\x01\x04\x02\x05\x03\x06");
  EXPECT_EQ(parse(file).layout, TensorLayout::strided(DType::uint8, {2, 3}, {1, 2}));
  EXPECT_EQ(shown(file), "[[1, 2, 3],\n [4, 5, 6]]\nuint8[2, 3]");
}

TEST(Npy, booleans_and_complex_numbers_are_read) {
  EXPECT_EQ(shown(file_of("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "\x01\x00"s)),
            "[ true, false]\nboolean[2]");
  const std::complex<double> number(3, -4);
  std::string data(16, '\0');
  std::memcpy(data.data(), &number, sizeof(number));
  EXPECT_EQ(shown(file_of("{'descr': '<c16', 'fortran_order': False, 'shape': (), }", data)), "3-4j\ncomplex128[]");
}

TEST(Npy, dictionary_accepts_any_python_formatting) {
  for (const char* const text : {"{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
                                 "{\"descr\": \"<f4\", 'fortran_order': False, 'shape': (2, 3)}",
                                 " { 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' , } \n",
                                 "{u'descr': u'<f4', u'fortran_order': False, u'shape': (2L, 3L)}\n\n",
                                 "{'descr': '=f4',\n 'fortran_order': False,\t'shape': (2, 3)}",
                                 "{'descr': 'f4', 'fortran_order': False, 'shape': (2, 3), }"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(parse(file_of(text, std::string(24, '\0'))).layout, TensorLayout::contiguous(DType::float32, {2, 3}));
  }
}

TEST(Npy, bytes_after_the_data_are_ignored) {
  EXPECT_EQ(parse(file_of(kMatrix, std::string(100, '\0'))).layout.bytes(), 24U);
}

TEST(Npy, every_type_round_trips) {
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::bfloat16) continue;
    for (const auto& shape : {std::vector<std::int64_t>{}, {7}, {0}, {2, 3}, {1, 1, 1, 1, 1, 1, 1, 2}}) {
      const auto layout = TensorLayout::contiguous(dtype, shape);
      const auto header = npy_header(layout);
      EXPECT_EQ(header.size() % 64, 0U);
      EXPECT_EQ(header.back(), '\n');
      const auto read = parse(header + std::string(layout.bytes(), '\0'));
      EXPECT_EQ(read.layout, layout);
      EXPECT_EQ(read.data_offset, header.size());
    }
  }
}

TEST(Npy, header_matches_numpy) {
  const auto header = npy_header(TensorLayout::contiguous(DType::float32, {2, 3}));
  EXPECT_EQ(header, "\x93NUMPY\x01\x00\x76\x00"s + kMatrix + std::string(58, ' ') + "\n");
  EXPECT_NE(npy_header(TensorLayout::contiguous(DType::boolean, {5})).find("'|b1'"), std::string::npos);
  EXPECT_NE(npy_header(TensorLayout::contiguous(DType::int64, {5})).find("(5,)"), std::string::npos);
  EXPECT_NE(npy_header(TensorLayout::contiguous(DType::int64, {})).find("()"), std::string::npos);
}

TEST(Npy, unsupported_layouts_throw) {
  expect_error(Errc::unsupported,
               [] { static_cast<void>(npy_header(TensorLayout::contiguous(DType::bfloat16, {2}))); },
               {"bfloat16", "convert it to float32"});
  const auto turned = TensorLayout::contiguous(DType::int8, {2, 3}).transpose(0, 1);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(npy_header(turned)); }, {"is not contiguous"});
}

TEST(Npy, other_files_are_corrupt) {
  expect_refused(Errc::corrupt, "", {"is empty"});
  expect_refused(Errc::corrupt, "PK\x03\x04 and so on", {"does not begin"});
  expect_refused(Errc::corrupt, "\x94NUMPY\x01\x00\x00\x00"s, {"does not begin"});
  expect_refused(Errc::corrupt, "\x93NUMP", {"truncated"});
}

TEST(Npy, unknown_formats_are_unsupported) {
  for (const char major : {'\x00', '\x04', '\xff'})
    expect_refused(Errc::unsupported, file_of(kMatrix, "", major), {"format"});
  auto file = file_of(kMatrix, std::string(24, '\0'));
  file[7] = 1;
  expect_refused(Errc::unsupported, file, {"1.1"});
}

TEST(Npy, every_truncated_file_is_corrupt) {
  for (const char major : {'\x01', '\x02'}) {
    const auto whole = file_of(kMatrix, std::string(24, 'x'), major);
    static_cast<void>(parse(whole));
    for (std::size_t length = 1; length < whole.size(); ++length) {
      expect_refused(Errc::corrupt, whole.substr(0, length), {"truncated"});
    }
  }
}

TEST(Npy, overlong_headers_are_rejected) {
  expect_refused(Errc::unsupported, "\x93NUMPY\x02\x00\xff\xff\xff\xff"s, {"4294967295 bytes"});
  expect_refused(Errc::corrupt, "\x93NUMPY\x01\x00\xff\xff"s, {"truncated"});
}

TEST(Npy, malformed_dictionaries_are_corrupt) {
  const std::vector<std::string> broken = {
      "",
      "{}",
      "{",
      "}",
      "[]",
      "{'descr': '<f4'}",
      "{'descr': '<f4', 'fortran_order': False}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}",
      "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
      "{'descr': '<f4', 'fortran_order': false, 'shape': (2, 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': 6}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2,, 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': ('2', 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
      "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}",
      "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2, 3)}",
      "{'descr': <f4, 'fortran_order': False, 'shape': (2, 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x",
      "{,'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),,}",
      "{'descr': '|f4', 'fortran_order': False, 'shape': (2, 3)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 3)}"};
  for (const auto& text : broken) expect_refused(Errc::corrupt, file_of(text, std::string(64, '\0')), {"numpy.save"});
}

TEST(Npy, sizes_that_overflow_are_corrupt) {
  for (const char* const shape : {"(4611686018427387904, 4)", "(9223372036854775807,)", "(4294967296, 4294967296)",
                                  "(4611686018427387904, 4611686018427387904, 0)"}) {
    for (const char* const order : {"True", "False"}) {
      const auto text = "{'descr': '<f8', 'fortran_order': "s + order + ", 'shape': " + shape + "}";
      expect_refused(Errc::corrupt, file_of(text, "12345678"), {"impossible size", "2^62"});
    }
  }
  expect_refused(Errc::corrupt, file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,)}", ""),
                 {"truncated", "1000000000077"});
}

TEST(Npy, non_numeric_elements_are_unsupported) {
  for (const char* const type :
       {"<U5", "|O", "|S3", "<M8[ns]", "<f16", "|V8", "", "<", "<i3", "f", "<f4 ", "<b2", "\x01"}) {
    const auto text = "{'descr': '"s + type + "', 'fortran_order': False, 'shape': (1,)}";
    expect_refused(Errc::unsupported, file_of(text, std::string(64, '\0')), {"elements of type", "astype"});
  }
  expect_refused(Errc::unsupported,
                 file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234"), {"structures"});
}

TEST(Npy, big_endian_numbers_are_unsupported_except_single_bytes) {
  for (const char* const type : {">f4", ">i2", ">c16", ">u8"}) {
    const auto text = "{'descr': '"s + type + "', 'fortran_order': False, 'shape': (1,)}";
    expect_refused(Errc::unsupported, file_of(text, std::string(64, '\0')), {"big-endian", "newbyteorder"});
  }
  EXPECT_EQ(parse(file_of("{'descr': '>u1', 'fortran_order': False, 'shape': (1,)}", "x")).layout.dtype(),
            DType::uint8);
}

TEST(Npy, too_many_dimensions_are_unsupported) {
  expect_refused(Errc::unsupported,
                 file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)}", "x"),
                 {"9 dimensions"});
}

// Any change of a file gives a valid result or an error.
TEST(Npy, corrupted_files_are_safe) {
  std::mt19937 random(31);
  const auto whole = file_of(kMatrix, std::string(24, '\0'));
  int read = 0;
  for (int i = 0; i < 50'000; ++i) {
    auto file = whole;
    for (auto changes = 1 + random() % 3U; changes > 0; --changes) {
      const std::string letters = "0123456789<>|'\"(){}:, fiucTF\n\\";
      const bool is_letter = random() % 2U == 0;
      file[random() % file.size()] = is_letter ? letters[random() % letters.size()] : static_cast<char>(random());
    }
    try {
      const auto header = parse(file);
      ASSERT_LE(header.data_offset + header.layout.extent_bytes().end, file.size());
      ++read;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Errc::corrupt || error.code() == Errc::unsupported) << error.what();
    }
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace drover::tensor
