// Tensors as text.
#include "drover/tensor/tensor_layout.hpp"

#include <algorithm>
#include <complex>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
std::string text_of(const std::vector<T>& elements, const Dims& shape, const TensorTextOptions& options = {}) {
  return format_tensor(TensorLayout::contiguous(dtype_of<T>(), shape), std::as_bytes(std::span(elements)), options);
}

std::vector<std::int32_t> counting(std::size_t count) {
  std::vector<std::int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(TensorText, matrix_is_aligned_and_followed_by_its_type) {
  EXPECT_EQ(text_of<std::int32_t>({1, -20, 3, 4, 5, 600}, {2, 3}),
            "[[  1, -20,   3],\n"
            " [  4,   5, 600]]\n"
            "int32[2, 3]");
}

TEST(TensorText, blocks_are_separated_by_empty_lines) {
  EXPECT_EQ(text_of(counting(8), {2, 2, 2}),
            "[[[0, 1],\n"
            "  [2, 3]],\n"
            "\n"
            " [[4, 5],\n"
            "  [6, 7]]]\n"
            "int32[2, 2, 2]");
}

TEST(TensorText, scalar_has_no_brackets) {
  EXPECT_EQ(text_of<std::int64_t>({-7}, {}), "-7\nint64[]");
  EXPECT_EQ(text_of<double>({0.5}, {}), "0.5000\nfloat64[]");
}

TEST(TensorText, empty_tensors_are_empty_brackets) {
  EXPECT_EQ(text_of<float>({}, {0}), "[]\nfloat32[0]");
  EXPECT_EQ(text_of<float>({}, {3, 0}), "[]\nfloat32[3, 0]");
  EXPECT_EQ(text_of<float>({}, {0, std::int64_t{1} << 40U}), "[]\nfloat32[0, 1099511627776]");
}

TEST(TensorText, floats_have_four_decimals_unless_all_are_integers) {
  EXPECT_EQ(text_of<float>({1, 2.5F, -3}, {3}), "[ 1.0000,  2.5000, -3.0000]\nfloat32[3]");
  EXPECT_EQ(text_of<float>({1, 2, -30}, {3}), "[  1,   2, -30]\nfloat32[3]");
  EXPECT_EQ(text_of<double>({1.0 / 3, 2}, {2}, {.decimals = 2}), "[0.33, 2.00]\nfloat64[2]");
  EXPECT_EQ(text_of<double>({0, -0.0}, {2}), "[ 0, -0]\nfloat64[2]");
}

TEST(TensorText, very_large_and_small_numbers_get_an_exponent) {
  EXPECT_EQ(text_of<double>({1e10, 1}, {2}), "[1.0000e+10, 1.0000e+00]\nfloat64[2]");
  EXPECT_EQ(text_of<double>({1e-5, 0}, {2}), "[1.0000e-05, 0.0000e+00]\nfloat64[2]");
  EXPECT_EQ(text_of<double>({99999999, 1}, {2}), "[99999999,        1]\nfloat64[2]");
  EXPECT_EQ(text_of<double>({0.0001}, {1}), "[0.0001]\nfloat64[1]");
}

TEST(TensorText, nan_and_infinities_do_not_affect_the_format) {
  EXPECT_EQ(text_of<double>({kNan, 1, kInfinity, -kInfinity}, {4}), "[ nan,    1,  inf, -inf]\nfloat64[4]");
  EXPECT_EQ(text_of<double>({kNan, 1.5}, {2}), "[   nan, 1.5000]\nfloat64[2]");
  EXPECT_EQ(text_of<double>({kNan, -kNan}, {2}), "[nan, nan]\nfloat64[2]");
}

TEST(TensorText, any_nonzero_byte_is_shown_as_true) {
  const std::vector<std::uint8_t> bytes = {0, 1, 2, 255};
  const auto layout = TensorLayout::contiguous(DType::boolean, {2, 2});
  EXPECT_EQ(format_tensor(layout, std::as_bytes(std::span(bytes))),
            "[[false,  true],\n [ true,  true]]\nboolean[2, 2]");
}

TEST(TensorText, complex_numbers_show_both_parts) {
  using Complex = std::complex<float>;
  EXPECT_EQ(text_of<Complex>({{1, 2}, {-1, -2}}, {2}), "[ 1+2j, -1-2j]\ncomplex64[2]");
  EXPECT_EQ(text_of<Complex>({{1, 0.5F}}, {1}), "[1.0000+0.5000j]\ncomplex64[1]");
  EXPECT_EQ(text_of<std::complex<double>>({{0, kNan}, {kInfinity, -kInfinity}}, {2}),
            "[  0+nanj, inf-infj]\ncomplex128[2]");
}

TEST(TensorText, integer_types_show_their_limits) {
  EXPECT_EQ(text_of<std::int8_t>({-128, 127}, {2}), "[-128,  127]\nint8[2]");
  EXPECT_EQ(text_of<std::uint8_t>({0, 255}, {2}), "[  0, 255]\nuint8[2]");
  EXPECT_EQ(text_of<std::int16_t>({-32768}, {1}), "[-32768]\nint16[1]");
  EXPECT_EQ(text_of<std::uint16_t>({65535}, {1}), "[65535]\nuint16[1]");
  EXPECT_EQ(text_of<std::uint32_t>({4294967295U}, {1}), "[4294967295]\nuint32[1]");
  EXPECT_EQ(text_of<std::int64_t>({std::numeric_limits<std::int64_t>::min()}, {}), "-9223372036854775808\nint64[]");
  EXPECT_EQ(text_of<std::uint64_t>({std::numeric_limits<std::uint64_t>::max()}, {}),
            "18446744073709551615\nuint64[]");
}

TEST(TensorText, half_floats_are_shown_as_numbers) {
  EXPECT_EQ(text_of<Float16>({Float16(0.5F), Float16(2)}, {2}), "[0.5000, 2.0000]\nfloat16[2]");
  EXPECT_EQ(text_of<BFloat16>({BFloat16(-3)}, {1}), "[-3]\nbfloat16[1]");
}

TEST(TensorText, views_show_only_their_elements) {
  const auto numbers = counting(6);
  const auto layout = TensorLayout::contiguous(DType::int32, {2, 3});
  const auto memory = std::as_bytes(std::span(numbers));
  EXPECT_EQ(format_tensor(layout.transpose(0, 1), memory), "[[0, 3],\n [1, 4],\n [2, 5]]\nint32[3, 2]");
  EXPECT_EQ(format_tensor(layout.select(0, 1), memory), "[3, 4, 5]\nint32[3]");
  EXPECT_EQ(format_tensor(layout.slice(1, 0, 1).expand({2, 3}), memory), "[[0, 0, 0],\n [3, 3, 3]]\nint32[2, 3]");
}

TEST(TensorText, large_tensors_show_only_their_edges) {
  EXPECT_EQ(text_of(counting(1001), {1001}), "[   0,    1,    2, ...,  998,  999, 1000]\nint32[1001]");
  EXPECT_EQ(text_of(counting(40), {10, 4}, {.most_elements = 39, .edge_elements = 1}),
            "[[ 0, ...,  3],\n"
            " ...,\n"
            " [36, ..., 39]]\n"
            "int32[10, 4]");
  EXPECT_EQ(text_of(counting(40), {2, 20}, {.most_elements = 39, .edge_elements = 2}),
            "[[ 0,  1, ..., 18, 19],\n"
            " [20, 21, ..., 38, 39]]\n"
            "int32[2, 20]");
}

TEST(TensorText, a_thousand_elements_are_shown_completely) {
  const auto text = text_of(counting(1000), {10, 100});
  EXPECT_EQ(text.find("..."), std::string::npos);
  EXPECT_NE(text.find("999]]"), std::string::npos);
}

TEST(TensorText, long_rows_wrap) {
  EXPECT_EQ(text_of(counting(8), {2, 4}, {.line_width = 9}),
            "[[0, 1,\n"
            "  2, 3],\n"
            " [4, 5,\n"
            "  6, 7]]\n"
            "int32[2, 4]");
  const auto text = text_of(counting(1000), {1000});
  std::size_t longest = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != '\n') continue;
    longest = std::max(longest, i - start);
    start = i + 1;
  }
  EXPECT_LE(longest, 80U);
  EXPECT_GT(longest, 70U);
}

// Eight dimensions have 6^8 elements at their edges, so the edges must shrink.
TEST(TensorText, many_dimensions_are_abbreviated_too) {
  const auto layout = TensorLayout::contiguous(DType::uint8, {}).expand({9, 9, 9, 9, 9, 9, 9, 9});
  const std::vector<std::byte> memory(1);
  const auto text = format_tensor(layout, memory);
  EXPECT_EQ(std::ranges::count(text, '0'), 256);
  EXPECT_LT(text.size(), 10'000U);
}

// The middle of this memory is not readable.
TEST(TensorText, hidden_elements_are_not_read) {
  constexpr std::size_t kPages = std::size_t{1} << 24U;
  void* const memory = ::mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(memory) + 4096, kPages - 8192, PROT_NONE), 0);
  const auto layout = TensorLayout::contiguous(DType::uint8, {std::int64_t{1} << 24U});
  const auto text = format_tensor(layout, {static_cast<const std::byte*>(memory), kPages});
  EXPECT_EQ(text, "[0, 0, 0, ..., 0, 0, 0]\nuint8[16777216]");
  EXPECT_EQ(::munmap(memory, kPages), 0);
}

TEST(TensorText, short_memory_and_invalid_options_throw) {
  const std::vector<std::byte> memory(7);
  const auto layout = TensorLayout::contiguous(DType::int32, {2});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(format_tensor(layout, memory)); }, {"of 7 bytes"});
  const auto none = TensorLayout();
  for (const TensorTextOptions& options :
       {TensorTextOptions{.decimals = -1}, TensorTextOptions{.decimals = 18}, TensorTextOptions{.most_elements = -1},
        TensorTextOptions{.most_elements = 1'000'001}, TensorTextOptions{.edge_elements = 0},
        TensorTextOptions{.line_width = 0}}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(format_tensor(none, memory, options)); },
                 {"out of range"});
  }
}

}  // namespace
}  // namespace drover::tensor
