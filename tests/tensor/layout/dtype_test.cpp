// Types of elements.
#include "drover/tensor/dtype.hpp"

#include <cstring>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;

TEST(DType, numbers_never_change) {
  EXPECT_EQ(static_cast<int>(DType::boolean), 1);
  EXPECT_EQ(static_cast<int>(DType::int64), 5);
  EXPECT_EQ(static_cast<int>(DType::uint64), 9);
  EXPECT_EQ(static_cast<int>(DType::float16), 10);
  EXPECT_EQ(static_cast<int>(DType::bfloat16), 11);
  EXPECT_EQ(static_cast<int>(DType::float32), 12);
  EXPECT_EQ(static_cast<int>(DType::complex128), 15);
}

TEST(DType, is_dtype_accepts_exactly_the_known_numbers) {
  for (const DType dtype : kAllDTypes) EXPECT_TRUE(is_dtype(static_cast<std::uint64_t>(dtype)));
  for (const std::uint64_t number :
       {std::uint64_t{0}, std::uint64_t{16}, std::uint64_t{255}, std::uint64_t{268}, ~std::uint64_t{0}}) {
    EXPECT_FALSE(is_dtype(number)) << number;
  }
}

TEST(DType, names_are_unique_and_parse_back) {
  std::set<std::string_view> names;
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    names.insert(to_string(dtype));
  }
  EXPECT_EQ(names.size(), kAllDTypes.size());
  EXPECT_EQ(to_string(DType::float32), "float32");
  EXPECT_EQ(to_string(DType::boolean), "boolean");
  EXPECT_EQ(to_string(static_cast<DType>(0)), "unknown");
  EXPECT_EQ(to_string(static_cast<DType>(200)), "unknown");
}

TEST(DType, unknown_name_throws_and_lists_all_names) {
  for (const char* const name : {"", "float", "Float32", "float32 ", "unknown"}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(parse_dtype(name)); },
                 {"is not a type of elements", "boolean, int8, ", "bfloat16", "complex128"});
  }
}

template <class T>
void expect_type(DType dtype) {
  EXPECT_EQ(dtype_of<T>(), dtype);
  EXPECT_EQ(dtype_of<const T>(), dtype);
  EXPECT_EQ(size_of(dtype), sizeof(T)) << to_string(dtype);
}

TEST(DType, cpp_types_map_to_dtypes_of_their_size) {
  expect_type<bool>(DType::boolean);
  expect_type<std::int8_t>(DType::int8);
  expect_type<std::int16_t>(DType::int16);
  expect_type<std::int32_t>(DType::int32);
  expect_type<std::int64_t>(DType::int64);
  expect_type<long long>(DType::int64);  // NOLINT(google-runtime-int): another type than long
  expect_type<std::uint8_t>(DType::uint8);
  expect_type<std::uint16_t>(DType::uint16);
  expect_type<std::uint32_t>(DType::uint32);
  expect_type<std::uint64_t>(DType::uint64);
  expect_type<Float16>(DType::float16);
  expect_type<BFloat16>(DType::bfloat16);
  expect_type<float>(DType::float32);
  expect_type<double>(DType::float64);
  expect_type<std::complex<float>>(DType::complex64);
  expect_type<std::complex<double>>(DType::complex128);
}

TEST(DType, non_numeric_types_are_not_elements) {
  EXPECT_FALSE(TensorElement<char>);
  EXPECT_FALSE(TensorElement<wchar_t>);
  EXPECT_FALSE(TensorElement<std::byte>);
  EXPECT_FALSE(TensorElement<long double>);
  EXPECT_FALSE(TensorElement<float*>);
  EXPECT_FALSE(TensorElement<std::complex<int>>);
  EXPECT_TRUE(TensorElement<const float>);
}

}  // namespace
}  // namespace drover::tensor
