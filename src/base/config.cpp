#include "base/config.hpp"

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover {

std::optional<std::string> environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

std::int64_t environment_number(const char* name, std::int64_t fallback, std::int64_t least, std::int64_t most) {
  const auto text = environment(name);
  if (!text) return fallback;
  std::int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end || value < least || value > most) {
    throw Error(Errc::invalid_argument,
                fmt::format("{}={} is not a whole number from {} to {}", name, *text, least, most),
                fmt::format("unset {} or set it to such a number (default {})", name, fallback));
  }
  return value;
}

std::uint64_t environment_bytes(const char* name, std::uint64_t fallback) {
  const auto text = environment(name);
  if (!text) return fallback;
  const auto value = parse_bytes(*text);
  if (!value || *value == 0) {
    throw Error(Errc::invalid_argument, fmt::format("{}={} is not a size", name, *text),
                fmt::format("unset {} or write it like 512MiB or 4GiB", name));
  }
  return *value;
}

}  // namespace drover
