#include "observe/text_files.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace drover::observe {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  const std::ifstream file(path, std::ios::binary);
  // This operator swallows read errors: files of a process that is exiting can be opened, but not read.
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::string_view trimmed(std::string_view text) noexcept {
  const auto first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
    if (text.empty()) pieces.emplace_back();
  }
  return pieces;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const auto end = std::min(text.find_first_of(kSpaces), text.size());
    found.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return found;
}

std::optional<std::uint64_t> number(std::string_view text) noexcept {
  text = trimmed(text);
  std::uint64_t value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto parsed = std::from_chars(begin, end, value);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view name) {
  for (const auto line : split(text, '\n')) {
    const auto parts = words(line);
    if (parts.size() >= 2 && parts[0] == name) return number(parts[1]);
  }
  return std::nullopt;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace drover::observe
