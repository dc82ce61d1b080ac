#include "tensor/layout/element_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace drover::detail {
namespace {

template <class T>
T element(std::span<const std::byte> memory, std::int64_t place) {
  T value{};
  std::memcpy(&value, memory.data() + static_cast<std::size_t>(place) * sizeof(T), sizeof(T));
  return value;
}

// How all numbers of one tensor are written.
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

// A sign between the parts, also before nan.
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
  // As bytes: memory from elsewhere may hold other values than 0 and 1.
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

}  // namespace

std::vector<std::string> element_texts(DType dtype, std::span<const std::byte> memory,
                                       std::span<const std::int64_t> places, int decimals) {
  auto texts = texts_of(dtype, memory, places, decimals);
  std::size_t width = 0;
  for (const auto& text : texts) width = std::max(width, text.size());
  for (auto& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

}  // namespace drover::detail
