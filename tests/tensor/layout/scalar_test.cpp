// One number as an element of any type.
#include "drover/tensor/dtype.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "support/expect_error.hpp"

namespace drover::tensor {
namespace {

template <class T>
T stored(const Scalar& number) {
  T value{};
  number.store(dtype_of<T>(), std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

template <class T>
void expect_refused(const Scalar& number, const std::string& text) {
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(stored<T>(number)); }, {text});
}

TEST(Scalar, integers_are_accepted_up_to_the_limits) {
  EXPECT_EQ(stored<std::int8_t>(-128), -128);
  EXPECT_EQ(stored<std::uint8_t>(255), 255);
  EXPECT_EQ(stored<std::int64_t>(std::numeric_limits<std::int64_t>::min()), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(stored<std::uint64_t>(std::numeric_limits<std::uint64_t>::max()),
            std::numeric_limits<std::uint64_t>::max());
  expect_refused<std::int8_t>(128, "128 cannot be an element of type int8: it is out of range");
  expect_refused<std::uint8_t>(-1, "-1");
  expect_refused<std::int64_t>(std::numeric_limits<std::uint64_t>::max(), "out of range");
}

TEST(Scalar, integer_types_reject_fractions) {
  EXPECT_EQ(stored<std::int32_t>(-7.0), -7);
  EXPECT_EQ(stored<std::uint64_t>(std::ldexp(1.0, 63)), std::uint64_t{1} << 63U);
  expect_refused<std::int32_t>(0.5, "0.5 cannot be an element of type int32: it is out of range, or not whole");
  expect_refused<std::int64_t>(std::ldexp(1.0, 63), "out of range");
  expect_refused<std::int16_t>(std::nan(""), "nan");
  expect_refused<std::uint32_t>(-1.0, "-1");
}

TEST(Scalar, real_types_round_to_their_precision) {
  EXPECT_EQ(stored<float>(0.1), 0.1F);
  EXPECT_EQ(stored<double>(3), 3.0);
  EXPECT_EQ(static_cast<float>(stored<Float16>(1.5)), 1.5F);
  EXPECT_EQ(static_cast<float>(stored<BFloat16>(-2)), -2.0F);
  EXPECT_TRUE(std::isinf(stored<float>(1e300)));
}

TEST(Scalar, complex_numbers_require_a_complex_type) {
  const std::complex<double> number(1.0, -2.0);
  EXPECT_EQ(stored<std::complex<float>>(number), std::complex<float>(1.0F, -2.0F));
  EXPECT_EQ(stored<std::complex<double>>(4), std::complex<double>(4.0));
  EXPECT_EQ(stored<double>(std::complex<double>(5.0)), 5.0);
  expect_refused<double>(number, "1-2j cannot be an element of type float64: it has an imaginary part");
}

TEST(Scalar, booleans_accept_only_0_and_1) {
  EXPECT_TRUE(stored<bool>(true));
  EXPECT_FALSE(stored<bool>(0.0));
  expect_refused<bool>(2, "neither 0 nor 1");
}

TEST(Scalar, memory_of_the_wrong_size_is_rejected) {
  std::array<std::byte, 3> memory{};
  test::expect_error(Errc::invalid_argument, [&] { Scalar(1).store(DType::int32, memory); });
}

}  // namespace
}  // namespace drover::tensor
