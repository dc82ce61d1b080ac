#include "process/template/start_area.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace drover::process {
namespace {

constexpr int kArgumentsBegin = 45;  // after the name; see proc(5), field 48 and the next three

// A field of /proc/self/stat after the name; 0 if there is none.
std::uintptr_t field(std::string_view fields, int index) {
  for (; index > 0; --index) fields.remove_prefix(std::min(fields.size(), fields.find(' ') + 1));
  std::uintptr_t value = 0;
  std::from_chars(fields.data(), fields.data() + fields.size(), value);
  return value;
}

char* address(std::uintptr_t value) {
  return reinterpret_cast<char*>(value);  // NOLINT(performance-no-int-to-ptr): printed by the kernel
}

}  // namespace

StartArea::StartArea() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto close = text.rfind(')');
  if (close == std::string::npos || close + 2 > text.size()) return;
  const auto fields = std::string_view(text).substr(close + 2);
  arguments_ = {address(field(fields, kArgumentsBegin)), address(field(fields, kArgumentsBegin + 1))};
  variables_ = {address(field(fields, kArgumentsBegin + 2)), address(field(fields, kArgumentsBegin + 3))};
}

void StartArea::show(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& variables) const noexcept {
  fill(arguments_, arguments, true);
  fill(variables_, variables, false);
}

// The kernel shows the whole area; without a zero as its last byte it would read beyond.
void StartArea::fill(Range range, const std::vector<std::string>& texts, bool cuts) noexcept {
  if (range.begin == nullptr || range.end <= range.begin) return;
  auto room = static_cast<std::size_t>(range.end - range.begin) - 1;
  char* at = range.begin;
  for (const auto& text : texts) {
    if (room == 0) break;
    const std::size_t length = cuts ? std::min(text.size(), room - 1) : text.size();
    if (length >= room) continue;
    std::memcpy(at, text.data(), length);
    at[length] = '\0';
    at += length + 1;
    room -= length + 1;
  }
  std::memset(at, 0, static_cast<std::size_t>(range.end - at));
}

}  // namespace drover::process
