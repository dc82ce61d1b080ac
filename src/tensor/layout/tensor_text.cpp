#include "drover/tensor/tensor_text.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "tensor/layout/element_text.hpp"
#include "tensor/layout/memory_check.hpp"
#include "tensor/layout/tensor_text_parts.hpp"

namespace drover {
namespace {

constexpr int kMostDecimals = 17;
constexpr std::int64_t kMostElements = 1'000'000;
constexpr std::string_view kGap = "...";

// How many indices are shown at either end of a dimension, or 0 where all are.
struct Shown {
  std::int64_t edge = 0;

  [[nodiscard]] bool has_gap(std::int64_t size) const noexcept { return edge > 0 && size > 2 * edge; }
  // Indices that are shown of a dimension.
  [[nodiscard]] std::int64_t count(std::int64_t size) const noexcept { return has_gap(size) ? 2 * edge : size; }
  // The index that is shown as the nth.
  [[nodiscard]] std::int64_t index(std::int64_t nth, std::int64_t size) const noexcept {
    return has_gap(size) && nth >= edge ? size - 2 * edge + nth : nth;
  }
};

// With many dimensions the edges alone would be many elements, so they shrink until they are not.
Shown shown_of(const TensorLayout& layout, const TensorTextOptions& options) {
  if (layout.element_count() <= options.most_elements) return {};
  Shown shown{.edge = options.edge_elements};
  for (; shown.edge > 1; --shown.edge) {
    std::int64_t count = 1;
    for (const auto size : layout.shape()) count = std::min(count * shown.count(size), options.most_elements + 1);
    if (count <= options.most_elements) break;
  }
  return shown;
}

void add_places(const TensorLayout& layout, const Shown& shown, std::pair<std::size_t, std::int64_t> at,
                std::vector<std::int64_t>& places) {
  const auto [dim, place] = at;
  if (dim == layout.shape().size()) {
    places.push_back(place);
    return;
  }
  const std::int64_t size = layout.shape()[dim];
  for (std::int64_t nth = 0; nth < shown.count(size); ++nth) {
    add_places(layout, shown, {dim + 1, place + shown.index(nth, size) * layout.strides()[dim]}, places);
  }
}

// Writes brackets around texts that come in the order of the elements.
class Writer {
 public:
  Writer(const TensorLayout& layout, const Shown& shown, std::span<const std::string> texts, std::size_t line_width)
      : layout_(layout), shown_(shown), texts_(texts), line_width_(line_width) {}

  std::string write() {
    write_dimension(0);
    return std::move(text_);
  }

 private:
  void write_dimension(std::size_t dim) {
    const std::size_t rank = layout_.shape().size();
    if (dim == rank) {
      add(texts_[next_++], rank);
      return;
    }
    const std::int64_t size = layout_.shape()[dim];
    add("[", dim);
    for (std::int64_t nth = 0; nth < shown_.count(size); ++nth) {
      if (shown_.has_gap(size) && nth == shown_.edge) {
        separate(dim);
        add(kGap, dim + 1);
      }
      if (nth > 0) separate(dim);
      write_dimension(dim + 1);
    }
    add("]", dim);
  }

  // Elements of a row stand beside each other, everything else below each other, with empty lines between blocks.
  void separate(std::size_t dim) {
    const std::size_t below = layout_.shape().size() - 1 - dim;
    add(",", dim);
    if (below == 0) {
      needs_space_ = true;
    } else {
      text_.append(below, '\n');
      start_line(dim + 1);
    }
  }

  void start_line(std::size_t indent) {
    line_start_ = text_.size();
    text_.append(indent, ' ');
    needs_space_ = false;
  }

  void add(std::string_view piece, std::size_t indent) {
    // A comma or bracket may still follow.
    if (needs_space_ && text_.size() - line_start_ + piece.size() + 2 > line_width_) {
      text_ += '\n';
      start_line(indent);
    }
    if (std::exchange(needs_space_, false)) text_ += ' ';
    text_ += piece;
  }

  const TensorLayout& layout_;
  const Shown shown_;
  const std::span<const std::string> texts_;
  const std::size_t line_width_;
  std::size_t next_ = 0;
  std::size_t line_start_ = 0;
  bool needs_space_ = false;
  std::string text_;
};

void check_options(const TensorTextOptions& options) {
  require(options.decimals >= 0 && options.decimals <= kMostDecimals,
          "a tensor was to be written with no such decimals", "give 0 to 17 decimals");
  require(options.most_elements >= 0 && options.most_elements <= kMostElements && options.edge_elements > 0,
          "a tensor was to be written with no such number of elements",
          "give at least 1 edge element, and most_elements from 0 to 1000000");
  require(options.line_width > 0, "a tensor was to be written in lines without width", "give a width of 1 or more");
}

}  // namespace

std::string detail::format_fetched(const TensorLayout& layout, const FetchElement& fetch,
                                   const TensorTextOptions& options) {
  check_options(options);
  const auto form = fmt::format("\n{}[{}]", to_string(layout.dtype()), fmt::join(layout.shape(), ", "));
  if (layout.element_count() == 0) return "[]" + form;
  const Shown shown = shown_of(layout, options);
  std::vector<std::int64_t> places;
  add_places(layout, shown, {0, layout.offset()}, places);
  const std::size_t size = size_of(layout.dtype());
  std::vector<std::byte> fetched(places.size() * size);
  for (std::size_t nth = 0; nth < places.size(); ++nth) {
    fetch(places[nth], fetched.data() + nth * size);
    places[nth] = static_cast<std::int64_t>(nth);
  }
  const auto texts = element_texts(layout.dtype(), fetched, places, options.decimals);
  return Writer(layout, shown, texts, static_cast<std::size_t>(options.line_width)).write() + form;
}

std::string format_tensor(const TensorLayout& layout, std::span<const std::byte> memory,
                          const TensorTextOptions& options) {
  detail::check_memory(layout, memory.size());
  const std::size_t size = size_of(layout.dtype());
  const auto fetch = [&](std::int64_t place, std::byte* to) {
    std::memcpy(to, memory.data() + static_cast<std::size_t>(place) * size, size);
  };
  return detail::format_fetched(layout, fetch, options);
}

}  // namespace drover
