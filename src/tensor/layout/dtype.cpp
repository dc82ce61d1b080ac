#include "drover/tensor/dtype.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover {
namespace {

struct Facts {
  std::string_view name;
  std::size_t size;
};

constexpr std::array<Facts, kAllDTypes.size()> kFacts = {{
    {"boolean", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"uint8", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex64", 8},
    {"complex128", 16},
}};

constexpr Facts facts_of(DType dtype) noexcept {
  const auto number = static_cast<std::size_t>(dtype);
  return is_dtype(number) ? kFacts[number - 1] : Facts{"unknown", 1};
}

}  // namespace

std::size_t size_of(DType dtype) noexcept { return facts_of(dtype).size; }

std::string_view to_string(DType dtype) noexcept { return facts_of(dtype).name; }

DType parse_dtype(std::string_view name) {
  const auto* const found = std::ranges::find(kFacts, name, &Facts::name);
  if (found != kFacts.end()) return static_cast<DType>(found - kFacts.begin() + 1);
  std::string choices;
  for (const auto& facts : kFacts) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", facts.name);
  throw Error(Errc::invalid_argument, fmt::format("'{}' is no type of elements", name),
              fmt::format("choose one of {}", choices));
}

}  // namespace drover
