#include "drover/base/bytes.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include <fmt/format.h>

namespace drover {
namespace {

// The power of two of the unit: 0 for bytes, 10 for KiB.
std::optional<unsigned> unit_shift(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::string unit;
  for (const char c : text) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.empty() || unit == "b") return 0;
  constexpr std::string_view kPrefixes = "kmgt";
  const auto power = kPrefixes.find(unit[0]);
  const bool is_known = unit.size() == 1 || unit.substr(1) == "ib" || unit.substr(1) == "b";
  if (power == std::string_view::npos || !is_known) return std::nullopt;
  return 10 * static_cast<unsigned>(power + 1);
}

// std::from_chars, because the meaning of a number must not depend on the locale.
template <class Number>
std::optional<Number> parse_whole_text(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  constexpr double kRoundsToNextUnit = 1023.95;
  auto value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  while (value >= kRoundsToNextUnit && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const auto number = text.substr(0, text.find_first_not_of("0123456789."));
  const auto shift = unit_shift(text.substr(number.size()));
  if (!shift) return std::nullopt;
  if (number.find('.') == std::string_view::npos) {
    const auto whole = parse_whole_text<std::uint64_t>(number);
    if (!whole || *whole > std::numeric_limits<std::uint64_t>::max() >> *shift) return std::nullopt;
    return *whole << *shift;
  }
  const auto value = parse_whole_text<double>(number);
  constexpr double kTooMany = 0x1p64;
  const double scaled = value ? std::ldexp(*value, static_cast<int>(*shift)) : kTooMany;
  if (scaled >= kTooMany) return std::nullopt;
  return static_cast<std::uint64_t>(scaled);
}

}  // namespace drover
