#include "process/inspect/proc_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>

#include "base/sys.hpp"
#include "drover/base/fd.hpp"

namespace drover::process {

Fd open_to_read(const std::filesystem::path& path) {
  const auto open_file = [](const char* name) { return ::open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); };
  return Fd(sys::retry("open", open_file, path.c_str()));
}

std::optional<std::string> read_proc_text(const std::filesystem::path& path, std::size_t most) {
  const Fd file = open_to_read(path);
  if (!file.is_open()) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece{};
  while (text.size() < most) {
    const auto length = sys::retry("read", ::read, file.get(), static_cast<void*>(piece.data()),
                                   std::min(piece.size(), most - text.size()));
    if (length < 0 && text.empty()) return std::nullopt;
    if (length <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(length));
  }
  return text;
}

std::string read_proc_link(const std::filesystem::path& path) {
  std::array<char, PATH_MAX> target{};
  const auto length = ::readlink(path.c_str(), target.data(), target.size());
  return length <= 0 ? std::string() : std::string(target.data(), static_cast<std::size_t>(length));
}

std::vector<pid_t> numbers_in(const std::filesystem::path& folder) {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(folder.c_str()), ::closedir);
  if (!opened) return found;
  while (const dirent* const entry = ::readdir(opened.get())) {
    const std::string_view name = entry->d_name;
    if (!std::ranges::all_of(name, [](char letter) { return letter >= '0' && letter <= '9'; })) continue;
    if (const auto number = leading_number<pid_t>(name)) found.push_back(*number);
  }
  std::ranges::sort(found);
  return found;
}

std::string_view value_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name) || line.size() == name.size() || line[name.size()] != ':') continue;
    line.remove_prefix(name.size() + 1);
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return line.substr(first, line.find_last_not_of(" \t") - first + 1);
  }
  return {};
}

std::string printable(std::string_view text, std::size_t most) {
  constexpr std::string_view kCut = "...";
  std::string shown;
  for (const char letter : text.substr(0, most)) shown.push_back(letter >= ' ' && letter <= '~' ? letter : '?');
  if (text.size() > most && most > kCut.size()) shown.replace(most - kCut.size(), kCut.size(), kCut);
  return shown;
}

}  // namespace drover::process
