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
/// The end of a slice that includes the last index.
inline constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();

/// An argument of one number per dimension: a shape, strides or an order. Converts from {2, 3}, a vector, an array or
/// a span. Throws `Errc::invalid_argument` for more than `kMaxRank` numbers.
class Dims {
 public:
  /// Empty: the shape of a single number.
  Dims() noexcept = default;
  /// A copy of these.
  Dims(std::initializer_list<std::int64_t> numbers) : Dims(std::span(numbers.begin(), numbers.size())) {}
  /// A copy of these.
  Dims(std::span<const std::int64_t> numbers);
  /// A copy of a vector or array.
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
/// strides are 0 or more; dimensions of size 0 make it empty, strides of 0 repeat elements. Both the span of a layout
/// and the size of its elements are at most 2^62 bytes, so that nothing computed from it overflows.
///
/// A trivially copyable value without padding; call `is_valid` on one that came from elsewhere. Views are layouts of
/// the same memory. Negative dimensions and indices count from the end. Impossible views throw
/// `Errc::invalid_argument`, which names the dimension, its size and the argument.
class TensorLayout {
 public:
  /// Empty: uint8[0].
  TensorLayout() noexcept = default;
  /// In row-major order, from the start of the memory.
  [[nodiscard]] static TensorLayout contiguous(DType dtype, const Dims& shape);
  /// With given strides and offset, in elements.
  [[nodiscard]] static TensorLayout strided(DType dtype, const Dims& shape, const Dims& strides,
                                            std::int64_t offset = 0);

  /// The type of its elements.
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  /// The number of dimensions.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The size of each dimension; valid as long as this is.
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept { return {shape_.data(), rank_}; }
  /// The distance between elements along each dimension, in elements; valid as long as this is.
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return {strides_.data(), rank_}; }
  /// Where element (0, 0, ...) lies, in elements.
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }
  /// How many elements.
  [[nodiscard]] std::int64_t element_count() const noexcept;
  /// Bytes of all elements, without gaps.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// The range from the first to the last byte of any element; {0, 0} for an empty layout.
  [[nodiscard]] ByteRange extent_bytes() const noexcept;
  /// Whether the elements lie in row-major order without gaps, at any offset.
  [[nodiscard]] bool is_contiguous() const noexcept;
  /// Whether a layout that came as bytes from elsewhere satisfies the rules above.
  [[nodiscard]] bool is_valid() const noexcept;

  /// One index of a dimension, which is removed.
  [[nodiscard]] TensorLayout select(int dim, std::int64_t index) const;
  /// Every `step`th index from `begin` up to `end`. Clamps both ends to the dimension, as Python does.
  /// Requires: step > 0.
  [[nodiscard]] TensorLayout slice(int dim, std::int64_t begin, std::int64_t end = kToEnd,
                                   std::int64_t step = 1) const;
  /// Dimension i becomes what dimension order[i] was. Requires: each dimension once.
  [[nodiscard]] TensorLayout permute(const Dims& order) const;
  /// Swaps two dimensions.
  [[nodiscard]] TensorLayout transpose(int a, int b) const;
  /// The same elements in the same order in another shape. One size may be -1: it follows from the others. Throws if
  /// no strides can express it; then copy the elements to a contiguous layout first.
  [[nodiscard]] TensorLayout reshape(const Dims& shape) const;
  /// Adds a dimension of size 1 before `dim`; -1 puts it last.
  [[nodiscard]] TensorLayout unsqueeze(int dim) const;
  /// Removes a dimension. Requires: its size is 1.
  [[nodiscard]] TensorLayout squeeze(int dim) const;
  /// Repeats dimensions of size 1 (with stride 0) to the sizes of `shape`, which may add dimensions in front.
  [[nodiscard]] TensorLayout expand(const Dims& shape) const;
  /// Parts along a dimension whose sizes differ by at most one, the larger ones first. At most a million parts.
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

/// "float32[2, 3]", followed by " strides [1, 2] offset 4" if it is not contiguous.
[[nodiscard]] std::string to_string(const TensorLayout& layout);

/// Copies elements between layouts in host memory; bytes that are contiguous in both are copied at once. Throws
/// `Errc::invalid_argument` if types or shapes differ, a layout exceeds its memory, or the target has strides of 0.
/// Requires: the two do not overlap.
void copy_strided(std::span<std::byte> to, const TensorLayout& to_layout, std::span<const std::byte> from,
                  const TensorLayout& from_layout);

/// Options of `format_tensor`.
struct TensorTextOptions {
  int decimals = 4;                   ///< after the point, unless all numbers are whole; 0 to 17
  std::int64_t most_elements = 1000;  ///< tensors with more are abbreviated; at most a million
  int edge_elements = 3;              ///< shown at either end of each abbreviated dimension, or fewer
  int line_width = 80;                ///< longer rows wrap
};

/// The elements in nested brackets and aligned columns, then a line with type and shape:
///
///     [[1.0000, 2.5000],
///      [3.0000,    nan]]
///     float32[2, 2]
///
/// Whole numbers have no decimals; very large or small ones get an exponent. Of a tensor with many elements only the
/// first and last are read and shown, with ... between them. Throws `Errc::invalid_argument` if the layout exceeds
/// `memory` or an option is out of range.
[[nodiscard]] std::string format_tensor(const TensorLayout& layout, std::span<const std::byte> memory,
                                        const TensorTextOptions& options = {});

}  // namespace drover
