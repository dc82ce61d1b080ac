// drover/tensor/tensor_layout.hpp: where the elements of a tensor lie in its memory.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "drover/tensor/dtype.hpp"

namespace drover {

/// The most dimensions a tensor has.
inline constexpr int kMaxRank = 8;
/// As the end of a slice: up to the last.
inline constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();

/// One number per dimension, as an argument: a shape, strides or an order. Written {2, 3}, or made of a vector, an
/// array or a span. A value. More than `kMaxRank` numbers throw `Errc::invalid_argument`.
class Dims {
 public:
  /// None: the shape of a single number.
  Dims() noexcept = default;
  /// These.
  Dims(std::initializer_list<std::int64_t> numbers) : Dims(std::span(numbers.begin(), numbers.size())) {}
  /// A copy of these.
  Dims(std::span<const std::int64_t> numbers);
  /// A copy of what lies in a vector or array.
  template <class Numbers>
    requires(!std::same_as<Numbers, Dims> && std::convertible_to<const Numbers&, std::span<const std::int64_t>>)
  Dims(const Numbers& numbers) : Dims(std::span<const std::int64_t>(numbers)) {}

  /// How many.
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// The numbers; valid as long as this is.
  [[nodiscard]] std::span<const std::int64_t> numbers() const noexcept { return {numbers_.data(), count_}; }

 private:
  std::size_t count_ = 0;
  std::array<std::int64_t, kMaxRank> numbers_{};
};

/// Bytes [begin, end) of a memory.
struct ByteRange {
  std::size_t begin = 0;                              ///< the first
  std::size_t end = 0;                                ///< one past the last
  bool operator==(const ByteRange&) const = default;  ///< same bytes
};

/// Type, shape and strides: the form of a tensor, without its memory. Element (i, j, ...) lies at
/// offset + i * strides[0] + j * strides[1] + ..., counted in elements from the start of the memory. Sizes and
/// strides are 0 or more; dimensions of size 0 make it empty, strides of 0 repeat elements. Everything a layout
/// spans, and the bytes of its elements, stays within 2^62 bytes, so that nothing computed from it overflows.
///
/// A value that is copied by its bytes, without padding; ask `is_valid` of one that came from elsewhere. Views are
/// layouts of the same memory. A dimension or index below 0 counts from the end. What cannot be is
/// `Errc::invalid_argument`, which names the dimension, its size and what was asked for.
class TensorLayout {
 public:
  /// Empty: uint8[0].
  TensorLayout() noexcept = default;
  /// Row after row, from the start of the memory.
  [[nodiscard]] static TensorLayout contiguous(DType dtype, const Dims& shape);
  /// As told. Strides and offset are in elements.
  [[nodiscard]] static TensorLayout strided(DType dtype, const Dims& shape, const Dims& strides,
                                            std::int64_t offset = 0);

  /// The type of its elements.
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  /// The number of dimensions.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The size of each dimension; valid as long as this is.
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept { return {shape_.data(), rank_}; }
  /// The way from one element to the next along each dimension, in elements; valid as long as this is.
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return {strides_.data(), rank_}; }
  /// Where element (0, 0, ...) lies, in elements.
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }
  /// How many elements.
  [[nodiscard]] std::int64_t element_count() const noexcept;
  /// Bytes of all elements, one after the other.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// The bytes of the memory from the first to the last that an element touches; {0, 0} for an empty one.
  [[nodiscard]] ByteRange extent_bytes() const noexcept;
  /// Whether the elements lie row after row without gaps, wherever they begin.
  [[nodiscard]] bool is_contiguous() const noexcept;
  /// Whether a layout that came as bytes from elsewhere keeps the rules above.
  [[nodiscard]] bool is_valid() const noexcept;

  /// One index of a dimension, which goes away.
  [[nodiscard]] TensorLayout select(int dim, std::int64_t index) const;
  /// Every `step`th index from `begin` to before `end`. What reaches too far is cut, as in Python.
  /// Requires: step > 0.
  [[nodiscard]] TensorLayout slice(int dim, std::int64_t begin, std::int64_t end = kToEnd,
                                   std::int64_t step = 1) const;
  /// Dimension i becomes what dimension order[i] was. Requires: each dimension once.
  [[nodiscard]] TensorLayout permute(const Dims& order) const;
  /// Two dimensions change places.
  [[nodiscard]] TensorLayout transpose(int a, int b) const;
  /// The same elements in the same order in another shape, of which one size may be -1: what is left. Only where
  /// strides can say it; else copy the elements to a contiguous layout first.
  [[nodiscard]] TensorLayout reshape(const Dims& shape) const;
  /// With a new dimension of size 1 before `dim`; -1 puts it last.
  [[nodiscard]] TensorLayout unsqueeze(int dim) const;
  /// Without a dimension. Requires: its size is 1.
  [[nodiscard]] TensorLayout squeeze(int dim) const;
  /// Dimensions of size 1 are repeated (stride 0) to the sizes of `shape`, which may have more dimensions in front.
  [[nodiscard]] TensorLayout expand(const Dims& shape) const;
  /// Parts along a dimension whose sizes differ by one at most, the larger ones first. Requires: 1 to a million.
  [[nodiscard]] std::vector<TensorLayout> split(int parts, int dim) const;

  /// Same type, shape, strides and offset.
  bool operator==(const TensorLayout&) const noexcept = default;

 private:
  [[nodiscard]] std::size_t dimension(int dim, const char* what) const;
  [[nodiscard]] TensorLayout without(std::size_t dim) const noexcept;
  [[nodiscard]] const char* flaw() const noexcept;
  [[nodiscard]] const TensorLayout& checked() const;

  std::int64_t offset_ = 0;
  std::array<std::int64_t, kMaxRank> shape_{};
  std::array<std::int64_t, kMaxRank> strides_{1};
  DType dtype_ = DType::uint8;
  std::uint8_t rank_ = 1;
  std::array<std::uint8_t, 6> unused_{};
};

static_assert(std::is_trivially_copyable_v<TensorLayout> && std::has_unique_object_representations_v<TensorLayout>,
              "layouts travel as bytes");

/// "float32[2, 3]", and " strides [1, 2] offset 4" behind it where it is not contiguous.
[[nodiscard]] std::string to_string(const TensorLayout& layout);

/// Copies the elements of one host memory to the places of another. Runs that lie together in both are copied at
/// once. Throws `Errc::invalid_argument` where types or shapes differ, a layout reaches outside its memory, or the
/// target has strides of 0. Requires: the two do not overlap.
void copy_strided(std::span<std::byte> to, const TensorLayout& to_layout, std::span<const std::byte> from,
                  const TensorLayout& from_layout);

}  // namespace drover
