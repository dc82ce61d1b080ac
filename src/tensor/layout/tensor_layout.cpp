#include "drover/tensor/tensor_layout.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"

namespace drover {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62U;

std::int64_t most_elements(DType dtype) noexcept { return kMostBytes / static_cast<std::int64_t>(size_of(dtype)); }

// a * b and a + b of numbers that are not negative; nothing above `most` comes out, but -1.
std::int64_t product_within(std::int64_t a, std::int64_t b, std::int64_t most) noexcept {
  std::int64_t result = 0;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result) || result > most ? -1 : result;
}

std::int64_t sum_within(std::int64_t a, std::int64_t b, std::int64_t most) noexcept {
  std::int64_t result = 0;
  return a < 0 || b < 0 || __builtin_add_overflow(a, b, &result) || result > most ? -1 : result;
}

constexpr const char* kTooLarge = "spans more than 2^62 bytes";

}  // namespace

Dims::Dims(std::span<const std::int64_t> numbers) : count_(numbers.size()) {
  if (count_ > kMaxRank) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} dimensions were given, and a tensor has {} at most", count_, kMaxRank),
                "join dimensions by a reshape");
  }
  std::ranges::copy(numbers, numbers_.begin());
}

TensorLayout TensorLayout::contiguous(DType dtype, const Dims& shape) {
  // The strides follow from the sizes; where these are impossible the check says so.
  std::array<std::int64_t, kMaxRank> ways{};
  std::int64_t way = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    ways.at(i) = std::max<std::int64_t>(way, 0);
    way = product_within(way, std::max<std::int64_t>(shape.numbers()[i], 1), kMostBytes);
  }
  return strided(dtype, shape, std::span<const std::int64_t>(ways.data(), shape.size()));
}

TensorLayout TensorLayout::strided(DType dtype, const Dims& shape, const Dims& strides, std::int64_t offset) {
  if (shape.size() != strides.size()) {
    throw Error(Errc::invalid_argument,
                fmt::format("a shape of {} dimensions was given with {} strides", shape.size(), strides.size()),
                "give one stride per dimension");
  }
  TensorLayout made;
  made.dtype_ = dtype;
  made.rank_ = static_cast<std::uint8_t>(shape.size());
  made.offset_ = offset;
  made.strides_ = {};
  std::ranges::copy(shape.numbers(), made.shape_.begin());
  std::ranges::copy(strides.numbers(), made.strides_.begin());
  return made.checked();
}

std::int64_t TensorLayout::element_count() const noexcept {
  if (std::ranges::find(shape(), 0) != shape().end()) return 0;
  std::int64_t count = 1;
  for (const auto size : shape()) count *= size;
  return count;
}

std::size_t TensorLayout::bytes() const noexcept {
  return static_cast<std::size_t>(element_count()) * size_of(dtype_);
}

ByteRange TensorLayout::extent_bytes() const noexcept {
  if (element_count() == 0) return {};
  std::int64_t last = offset_;
  for (std::size_t i = 0; i < rank_; ++i) last += (shape_.at(i) - 1) * strides_.at(i);
  const auto size = size_of(dtype_);
  return {.begin = static_cast<std::size_t>(offset_) * size, .end = (static_cast<std::size_t>(last) + 1) * size};
}

bool TensorLayout::is_contiguous() const noexcept {
  if (element_count() == 0) return true;
  std::int64_t way = 1;
  for (std::size_t i = rank_; i-- > 0;) {
    if (shape_.at(i) == 1) continue;
    if (strides_.at(i) != way) return false;
    way *= shape_.at(i);
  }
  return true;
}

// What is wrong with it, or nullptr. Dimensions of size 0 count as 1: so the rules hold for every view of it.
const char* TensorLayout::flaw() const noexcept {
  if (!is_dtype(static_cast<std::uint64_t>(dtype_))) return "has elements of an unknown type";
  if (rank_ > kMaxRank) return "has more than 8 dimensions";
  if (offset_ < 0) return "has a negative offset";
  const std::int64_t most = most_elements(dtype_);
  std::int64_t count = 1;
  std::int64_t last = sum_within(offset_, 1, most);
  for (std::size_t i = 0; i < rank_; ++i) {
    if (shape_.at(i) < 0) return "has a negative size";
    if (strides_.at(i) < 0) return "has a negative stride";
    if (strides_.at(i) > most) return kTooLarge;
    const std::int64_t size = std::max<std::int64_t>(shape_.at(i), 1);
    count = product_within(count, size, most);
    last = sum_within(last, product_within(size - 1, strides_.at(i), most), most);
  }
  return count < 0 || last < 0 ? kTooLarge : nullptr;
}

bool TensorLayout::is_valid() const noexcept {
  if (flaw() != nullptr) return false;
  const auto is_zero = [](auto number) { return number == 0; };
  return std::all_of(shape_.begin() + rank_, shape_.end(), is_zero) &&
         std::all_of(strides_.begin() + rank_, strides_.end(), is_zero) && std::ranges::all_of(unused_, is_zero);
}

const TensorLayout& TensorLayout::checked() const {
  if (const char* const wrong = flaw(); wrong != nullptr) {
    throw Error(Errc::invalid_argument,
                fmt::format("a tensor of type {}, shape [{}], strides [{}] and offset {} {}", to_string(dtype_),
                            fmt::join(shape(), ", "), fmt::join(strides(), ", "), offset_, wrong),
                "give a type of the list, sizes and strides of 0 or more, and a shape that fits in memory");
  }
  return *this;
}

std::string to_string(const TensorLayout& layout) {
  auto text = fmt::format("{}[{}]", to_string(layout.dtype()), fmt::join(layout.shape(), ", "));
  if (layout.is_contiguous()) return text;
  text += fmt::format(" strides [{}]", fmt::join(layout.strides(), ", "));
  if (layout.offset() != 0) text += fmt::format(" offset {}", layout.offset());
  return text;
}

}  // namespace drover
