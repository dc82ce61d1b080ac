#include "base/config.hpp"

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover {

namespace {

std::optional<std::string> text_if_any(const char* text) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

}  // namespace

std::optional<std::string> environment(const char* name) { return text_if_any(std::getenv(name)); }

std::optional<std::string> environment_path(const char* name) { return text_if_any(::secure_getenv(name)); }

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
