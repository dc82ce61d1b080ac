#include "drover/tensor/place.hpp"

#include <charconv>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover {

Place Place::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  int index = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_number = problem == std::errc{} && end == digits.data() + digits.size() && !digits.starts_with('-');
  if (is_number && name == "cuda") return device(BackendKind::cuda, index);
  if (is_number && name == "host") return device(BackendKind::host, index);
  throw Error(Errc::invalid_argument, fmt::format("'{}' is no place for memory", text),
              "write cpu, cuda:0 or host:0, with the number of the device");
}

std::string to_string(const Place& place) {
  return place.is_device ? fmt::format("{}:{}", to_string(place.backend), place.index) : "cpu";
}

}  // namespace drover
