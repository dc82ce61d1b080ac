#include "tensor/layout/tensor_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "tensor/layout/copy_strided.hpp"

namespace drover {
namespace {

template <class T>
T element(std::span<const std::byte> memory, std::int64_t place) {
  T value{};
  std::memcpy(&value, memory.data() + static_cast<std::size_t>(place) * sizeof(T), sizeof(T));
  return value;
}

// The format of all numbers of a tensor.
struct Style {
  enum class Form { whole, fixed, exponent };
  Form form = Form::whole;
  int decimals = 0;
};

Style style_for(const std::vector<double>& numbers, int decimals) {
  constexpr double kLarge = 1e8;
  constexpr double kSmall = 1e-4;
  bool is_whole = true;
  bool is_extreme = false;
  for (const double number : numbers) {
    const double size = std::abs(number);
    if (!std::isfinite(number) || size == 0) continue;
    is_whole = is_whole && number == std::trunc(number);
    is_extreme = is_extreme || size >= kLarge || size < kSmall;
  }
  if (is_extreme) return {.form = Style::Form::exponent, .decimals = decimals};
  return {.form = is_whole ? Style::Form::whole : Style::Form::fixed, .decimals = is_whole ? 0 : decimals};
}

std::string number_text(double number, const Style& style) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  if (style.form == Style::Form::exponent) return fmt::format("{:.{}e}", number, style.decimals);
  return fmt::format("{:.{}f}", number, style.decimals);
}

// Always writes a sign between the parts, even before nan.
std::string complex_text(double real, double imaginary, const Style& style) {
  auto text = number_text(imaginary, style);
  if (!text.starts_with('-')) text.insert(0, 1, '+');
  return number_text(real, style) + text + "j";
}

template <class T>
std::vector<std::string> whole_texts(std::span<const std::byte> memory, std::span<const std::int64_t> places) {
  std::vector<std::string> texts;
  for (const auto place : places) texts.push_back(fmt::format("{}", element<T>(memory, place)));
  return texts;
}

std::vector<std::string> boolean_texts(std::span<const std::byte> memory, std::span<const std::int64_t> places) {
  std::vector<std::string> texts;
  // Reads bytes, not bool: memory from elsewhere may hold values other than 0 and 1.
  for (const auto place : places) texts.emplace_back(element<std::uint8_t>(memory, place) != 0 ? "true" : "false");
  return texts;
}

template <class T>
std::vector<std::string> float_texts(std::span<const std::byte> memory, std::span<const std::int64_t> places,
                                     int decimals) {
  std::vector<double> numbers;
  for (const auto place : places) {
    const auto value = element<T>(memory, place);
    if constexpr (std::floating_point<T>) {
      numbers.push_back(static_cast<double>(value));
    } else {
      numbers.push_back(static_cast<double>(static_cast<float>(value)));
    }
  }
  const Style style = style_for(numbers, decimals);
  std::vector<std::string> texts;
  for (const double number : numbers) texts.push_back(number_text(number, style));
  return texts;
}

template <class Part>
std::vector<std::string> complex_texts(std::span<const std::byte> memory, std::span<const std::int64_t> places,
                                       int decimals) {
  std::vector<double> numbers;
  for (const auto place : places) {
    const auto value = element<std::complex<Part>>(memory, place);
    numbers.push_back(static_cast<double>(value.real()));
    numbers.push_back(static_cast<double>(value.imag()));
  }
  const Style style = style_for(numbers, decimals);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    texts.push_back(complex_text(numbers[i], numbers[i + 1], style));
  }
  return texts;
}

std::vector<std::string> texts_of(DType dtype, std::span<const std::byte> memory,
                                  std::span<const std::int64_t> places, int decimals) {
  switch (dtype) {
    case DType::boolean: return boolean_texts(memory, places);
    case DType::int8: return whole_texts<std::int8_t>(memory, places);
    case DType::int16: return whole_texts<std::int16_t>(memory, places);
    case DType::int32: return whole_texts<std::int32_t>(memory, places);
    case DType::int64: return whole_texts<std::int64_t>(memory, places);
    case DType::uint8: return whole_texts<std::uint8_t>(memory, places);
    case DType::uint16: return whole_texts<std::uint16_t>(memory, places);
    case DType::uint32: return whole_texts<std::uint32_t>(memory, places);
    case DType::uint64: return whole_texts<std::uint64_t>(memory, places);
    case DType::float16: return float_texts<Float16>(memory, places, decimals);
    case DType::bfloat16: return float_texts<BFloat16>(memory, places, decimals);
    case DType::float32: return float_texts<float>(memory, places, decimals);
    case DType::float64: return float_texts<double>(memory, places, decimals);
    case DType::complex64: return complex_texts<float>(memory, places, decimals);
    case DType::complex128: return complex_texts<double>(memory, places, decimals);
  }
  return {};
}

std::vector<std::string> element_texts(DType dtype, std::span<const std::byte> memory,
                                       std::span<const std::int64_t> places, int decimals) {
  auto texts = texts_of(dtype, memory, places, decimals);
  std::size_t width = 0;
  for (const auto& text : texts) width = std::max(width, text.size());
  for (auto& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

constexpr int kMostDecimals = 17;
constexpr std::int64_t kMostElements = 1'000'000;
constexpr std::string_view kGap = "...";

// How many indices are shown at either end of a dimension; 0 if all are.
struct Shown {
  std::int64_t edge = 0;

  [[nodiscard]] bool has_gap(std::int64_t size) const noexcept { return edge > 0 && size > 2 * edge; }
  // How many indices of a dimension are shown.
  [[nodiscard]] std::int64_t count(std::int64_t size) const noexcept { return has_gap(size) ? 2 * edge : size; }
  // The nth index that is shown.
  [[nodiscard]] std::int64_t index(std::int64_t nth, std::int64_t size) const noexcept {
    return has_gap(size) && nth >= edge ? size - 2 * edge + nth : nth;
  }
};

// With many dimensions the edges alone can be too many elements, so they shrink until they fit.
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

// Writes brackets around the texts of elements, given in row-major order.
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

  // Elements of a row go on one line, rows on separate lines, with empty lines between blocks.
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
  require(options.decimals >= 0 && options.decimals <= kMostDecimals, "TensorTextOptions::decimals is out of range",
          "use 0 to 17");
  require(options.most_elements >= 0 && options.most_elements <= kMostElements && options.edge_elements > 0,
          "TensorTextOptions::most_elements or edge_elements is out of range",
          "use 0 to 1000000 elements, and at least 1 edge element");
  require(options.line_width > 0, "TensorTextOptions::line_width is out of range", "use 1 or more");
}

}  // namespace

std::string tensor::format_fetched(const TensorLayout& layout, const tensor::FetchElement& fetch,
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
  tensor::check_memory(layout, memory.size());
  const std::size_t size = size_of(layout.dtype());
  const auto fetch = [&](std::int64_t place, std::byte* to) {
    std::memcpy(to, memory.data() + static_cast<std::size_t>(place) * size, size);
  };
  return tensor::format_fetched(layout, fetch, options);
}

}  // namespace drover
