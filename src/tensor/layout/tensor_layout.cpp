#include "drover/tensor/tensor_layout.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "tensor/layout/copy_strided.hpp"

namespace drover {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62U;

std::int64_t most_elements(DType dtype) noexcept { return kMostBytes / static_cast<std::int64_t>(size_of(dtype)); }

// a * b, and below a + b; -1 if a number is negative or the result exceeds `most`.
std::int64_t product_within(std::int64_t a, std::int64_t b, std::int64_t most) noexcept {
  std::int64_t result = 0;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result) || result > most ? -1 : result;
}

std::int64_t sum_within(std::int64_t a, std::int64_t b, std::int64_t most) noexcept {
  std::int64_t result = 0;
  return a < 0 || b < 0 || __builtin_add_overflow(a, b, &result) || result > most ? -1 : result;
}

constexpr const char* kTooLarge = "spans more than 2^62 bytes";
constexpr int kMostParts = 1'000'000;

// Clamps an end of a slice to a dimension of `size`, as Python does.
std::int64_t clamped(std::int64_t index, std::int64_t size) noexcept {
  if (index < 0) index = index < -size ? 0 : index + size;
  return std::min(index, size);
}

[[noreturn]] void throw_shape(const TensorLayout& layout, const Dims& shape, const std::string& why,
                              const std::string& remedy) {
  throw Error(
      Errc::invalid_argument,
      fmt::format("{} cannot be reshaped to [{}]: {}", to_string(layout), fmt::join(shape.numbers(), ", "), why),
      remedy);
}

// The product of sizes; -1 on overflow.
std::int64_t product(std::span<const std::int64_t> sizes) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return 0;
  std::int64_t result = 1;
  for (const auto size : sizes) {
    if (__builtin_mul_overflow(result, size, &result)) return -1;
  }
  return result;
}

// Replaces -1 in `shape` by the size that follows from the others.
std::vector<std::int64_t> resolved_shape(const TensorLayout& layout, const Dims& shape) {
  const std::int64_t count = layout.element_count();
  std::vector<std::int64_t> sizes(shape.numbers().begin(), shape.numbers().end());
  const auto open = std::ranges::find(sizes, -1);
  if (std::ranges::any_of(sizes, [](auto size) { return size < -1; }) || std::ranges::count(sizes, -1) > 1) {
    throw_shape(layout, shape, "sizes must be 0 or more",
                "write -1 at most once, for the size that follows from the others");
  }
  if (open != sizes.end()) {
    *open = 1;
    const std::int64_t others = product(sizes);
    if (others <= 0 || count % others != 0) {
      throw_shape(layout, shape, fmt::format("the other sizes do not divide its {} elements", count),
                  "give sizes whose product divides the number of elements");
    }
    *open = count / others;
  }
  if (product(sizes) != count) {
    throw_shape(layout, shape, fmt::format("it has {} elements", count),
                "give a shape with as many elements, or -1 for one size");
  }
  return sizes;
}

// Strides for `sizes`, from the innermost outwards: each size consumes elements of the innermost coalesced dimension
// that has some left. nullopt if a size would span two of them, which one stride cannot express.
std::optional<std::vector<std::int64_t>> strides_for(const TensorLayout& layout,
                                                     std::span<const std::int64_t> sizes) {
  auto dims = tensor::coalesced_dims(layout, layout);
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (dims.empty() || dims.back().size % sizes[i] != 0) return std::nullopt;
    tensor::SharedDim& dim = dims.back();
    strides[i] = dim.strides[0];
    dim.size /= sizes[i];
    if (dim.size == 1) {
      dims.pop_back();
    } else {
      dim.strides[0] *= sizes[i];
    }
  }
  return strides;
}

}  // namespace

Dims::Dims(std::span<const std::int64_t> numbers) : count_(numbers.size()) {
  if (count_ > kMaxRank) {
    throw Error(Errc::invalid_argument,
                fmt::format("a tensor of {} dimensions exceeds the maximum of {}", count_, kMaxRank),
                "merge dimensions with reshape");
  }
  std::ranges::copy(numbers, numbers_.begin());
}

TensorLayout TensorLayout::contiguous(DType dtype, const Dims& shape) {
  // Invalid sizes give arbitrary strides here; strided() throws for them.
  std::array<std::int64_t, kMaxRank> strides{};
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides.at(i) = std::max<std::int64_t>(stride, 0);
    stride = product_within(stride, std::max<std::int64_t>(shape.numbers()[i], 1), kMostBytes);
  }
  return strided(dtype, shape, std::span<const std::int64_t>(strides.data(), shape.size()));
}

TensorLayout TensorLayout::strided(DType dtype, const Dims& shape, const Dims& strides, std::int64_t offset) {
  if (shape.size() != strides.size()) {
    throw Error(Errc::invalid_argument,
                fmt::format("a shape of {} dimensions has {} strides", shape.size(), strides.size()),
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
  std::int64_t expected = 1;
  for (std::size_t i = rank_; i-- > 0;) {
    if (shape_.at(i) == 1) continue;
    if (strides_.at(i) != expected) return false;
    expected *= shape_.at(i);
  }
  return true;
}

// Describes what is invalid; nullptr if nothing is. Counts dimensions of size 0 as 1, so that the rules hold for
// every view of the layout.
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
                "give a known type, sizes and strides of 0 or more, and a shape that fits in memory");
  }
  return *this;
}

std::size_t TensorLayout::dimension(int dim, const char* what) const {
  if (dim < -rank() || dim >= rank()) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} got dimension {} of {}, which has {}", what, dim, to_string(*this), rank()),
                rank() == 0 ? "use a tensor with dimensions"
                            : fmt::format("give a dimension from {} to {}", -rank(), rank() - 1));
  }
  return static_cast<std::size_t>(dim < 0 ? dim + rank() : dim);
}

TensorLayout TensorLayout::without(std::size_t dim) const noexcept {
  TensorLayout view = *this;
  const auto remove = [&](auto& numbers) {
    std::copy(numbers.begin() + dim + 1, numbers.end(), numbers.begin() + dim);
    numbers.back() = 0;
  };
  remove(view.shape_);
  remove(view.strides_);
  --view.rank_;
  return view;
}

TensorLayout TensorLayout::select(int dim, std::int64_t index) const {
  const std::size_t at = dimension(dim, "select");
  const std::int64_t size = shape_.at(at);
  if (index < -size || index >= size) {
    throw Error(Errc::invalid_argument,
                fmt::format("index {} is out of range for dimension {} of {}, whose size is {}", index, dim,
                            to_string(*this), size),
                size == 0 ? "an empty dimension has no elements to select"
                          : fmt::format("give an index from {} to {}", -size, size - 1));
  }
  TensorLayout view = without(at);
  view.offset_ += (index < 0 ? index + size : index) * strides_.at(at);
  return view;
}

TensorLayout TensorLayout::slice(int dim, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  const std::size_t at = dimension(dim, "slice");
  const std::int64_t size = shape_.at(at);
  if (step <= 0) {
    throw Error(Errc::invalid_argument,
                fmt::format("a slice of dimension {} of {}, whose size is {}, has step {}", dim, to_string(*this),
                            size, step),
                "give a step of 1 or more; negative steps are not supported");
  }
  const std::int64_t first = clamped(begin, size);
  const std::int64_t length = std::max<std::int64_t>(clamped(end, size) - first, 0);
  TensorLayout view = *this;
  view.shape_.at(at) = length / step + (length % step != 0 ? 1 : 0);
  // Offset and stride change only if they are used, so that the view never spans more than this layout.
  if (length > 0) view.offset_ += first * strides_.at(at);
  if (view.shape_.at(at) > 1) view.strides_.at(at) *= step;
  return view;
}

TensorLayout TensorLayout::permute(const Dims& order) const {
  TensorLayout view = *this;
  std::array<bool, kMaxRank> is_used{};
  bool is_order = order.size() == rank_;
  for (std::size_t i = 0; is_order && i < rank_; ++i) {
    const std::int64_t dim = order.numbers()[i];
    is_order = dim >= -rank() && dim < rank();
    if (!is_order) break;
    const auto from = static_cast<std::size_t>(dim < 0 ? dim + rank() : dim);
    is_order = !std::exchange(is_used.at(from), true);
    view.shape_.at(i) = shape_.at(from);
    view.strides_.at(i) = strides_.at(from);
  }
  if (!is_order) {
    throw Error(Errc::invalid_argument,
                fmt::format("[{}] is not a permutation of the {} dimensions of {}", fmt::join(order.numbers(), ", "),
                            rank(), to_string(*this)),
                "list each dimension exactly once");
  }
  return view;
}

TensorLayout TensorLayout::transpose(int a, int b) const {
  const std::size_t first = dimension(a, "transpose");
  const std::size_t second = dimension(b, "transpose");
  TensorLayout view = *this;
  std::swap(view.shape_.at(first), view.shape_.at(second));
  std::swap(view.strides_.at(first), view.strides_.at(second));
  return view;
}

TensorLayout TensorLayout::unsqueeze(int dim) const {
  if (rank() == kMaxRank || dim < -rank() - 1 || dim > rank()) {
    throw Error(Errc::invalid_argument,
                fmt::format("unsqueeze got position {} for a new dimension of {}, which has {}", dim,
                            to_string(*this), rank()),
                rank() == kMaxRank ? fmt::format("a tensor has at most {} dimensions", kMaxRank)
                                   : fmt::format("give a position from {} to {}", -rank() - 1, rank()));
  }
  const auto at = static_cast<std::size_t>(dim < 0 ? dim + rank() + 1 : dim);
  TensorLayout view = *this;
  const auto insert = [&](auto& numbers) {
    std::copy_backward(numbers.begin() + at, numbers.end() - 1, numbers.end());
    numbers.at(at) = 1;
  };
  insert(view.shape_);
  insert(view.strides_);
  ++view.rank_;
  return view;
}

TensorLayout TensorLayout::squeeze(int dim) const {
  const std::size_t at = dimension(dim, "squeeze");
  if (shape_.at(at) != 1) {
    throw Error(Errc::invalid_argument,
                fmt::format("squeeze got dimension {} of {}, whose size is {}", dim, to_string(*this), shape_.at(at)),
                "squeeze only dimensions of size 1; use select to pick one index of another");
  }
  return without(at);
}

TensorLayout TensorLayout::expand(const Dims& shape) const {
  TensorLayout view = *this;
  view.rank_ = static_cast<std::uint8_t>(shape.size());
  view.shape_ = {};
  view.strides_ = {};
  std::ranges::copy(shape.numbers(), view.shape_.begin());
  for (std::size_t back = 1; back <= rank_; ++back) {
    const std::size_t old = rank_ - back;
    const bool has_place = back <= shape.size();
    const std::int64_t wanted = has_place ? shape.numbers()[shape.size() - back] : 0;
    if (!has_place || (wanted != shape_.at(old) && shape_.at(old) != 1)) {
      throw Error(Errc::invalid_argument,
                  fmt::format("{} cannot be expanded to [{}]: its dimension {} has size {}", to_string(*this),
                              fmt::join(shape.numbers(), ", "), old, shape_.at(old)),
                  "give at least as many sizes; the last ones must equal its own wherever those are not 1");
    }
    if (wanted == shape_.at(old)) view.strides_.at(shape.size() - back) = strides_.at(old);
  }
  return view.checked();
}

std::vector<TensorLayout> TensorLayout::split(int parts, int dim) const {
  const std::size_t at = dimension(dim, "split");
  const std::int64_t size = shape_.at(at);
  if (parts < 1 || parts > kMostParts) {
    throw Error(Errc::invalid_argument,
                fmt::format("dimension {} of {}, whose size is {}, cannot be split into {} parts", dim,
                            to_string(*this), size, parts),
                fmt::format("give 1 to {} parts", kMostParts));
  }
  std::vector<TensorLayout> views;
  views.reserve(static_cast<std::size_t>(parts));
  std::int64_t begin = 0;
  for (int i = 0; i < parts; ++i) {
    const std::int64_t end = begin + size / parts + (i < size % parts ? 1 : 0);
    views.push_back(slice(dim, begin, end));
    begin = end;
  }
  return views;
}

TensorLayout TensorLayout::reshape(const Dims& shape) const {
  const auto sizes = resolved_shape(*this, shape);
  if (is_contiguous()) {
    TensorLayout view = contiguous(dtype_, sizes);
    view.offset_ = offset_;
    return view.checked();
  }
  const auto strides = strides_for(*this, sizes);
  if (!strides) {
    throw_shape(*this, shape, "no strides describe its elements in that shape",
                "copy it to a contiguous layout first");
  }
  return strided(dtype_, sizes, *strides, offset_);
}

std::string to_string(const TensorLayout& layout) {
  auto text = fmt::format("{}[{}]", to_string(layout.dtype()), fmt::join(layout.shape(), ", "));
  if (layout.is_contiguous()) return text;
  text += fmt::format(" strides [{}]", fmt::join(layout.strides(), ", "));
  if (layout.offset() != 0) text += fmt::format(" offset {}", layout.offset());
  return text;
}

}  // namespace drover
