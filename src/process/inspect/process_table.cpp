#include "process/inspect/process_table.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>

#include "base/sys.hpp"
#include "drover/base/fd.hpp"

namespace drover::process {
namespace {

// The nth space-separated field, counted from 0.
template <class Number>
Number field(std::string_view text, int nth) {
  for (; nth > 0 && !text.empty(); --nth) text.remove_prefix(std::min(text.size(), text.find(' ') + 1));
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "PID (NAME) STATE PARENT GROUP SESSION ...": the name may contain anything, so fields are counted from the last
// parenthesis. The state is field 0, the start time field 19.
std::optional<ProcessRecord> parse(pid_t pid, std::string_view text) {
  const auto close = text.rfind(')');
  if (close == std::string_view::npos || close + 3 > text.size()) return std::nullopt;
  const auto fields = text.substr(close + 2);
  return ProcessRecord{.pid = pid,
                       .parent = field<pid_t>(fields, 1),
                       .session = field<pid_t>(fields, 3),
                       .state = fields.front(),
                       .start = field<std::uint64_t>(fields, 19)};
}

int open_at(int folder, const char* path) { return ::openat(folder, path, O_RDONLY | O_CLOEXEC); }

// nullopt and errno if it is gone or cannot be read.
std::optional<ProcessRecord> read_stat(int folder, const char* path, pid_t pid) {
  const Fd file(sys::call("openat", open_at, folder, path));
  if (!file.is_open()) return std::nullopt;
  std::array<char, 1024> text{};
  const auto length = ::read(file.get(), text.data(), text.size());
  if (length <= 0) return std::nullopt;
  return parse(pid, {text.data(), static_cast<std::size_t>(length)});
}

}  // namespace

std::optional<std::vector<ProcessRecord>> read_processes() {
  std::vector<ProcessRecord> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return std::nullopt;
  std::array<char, 32> path{};
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc{} || parsed.ptr != name.data() + name.size()) continue;
    static_cast<void>(std::snprintf(path.data(), path.size(), "%d/stat", pid));
    if (const auto record = read_stat(::dirfd(folder.get()), path.data(), pid)) {
      found.push_back(*record);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      return std::nullopt;
    }
  }
  return found;
}

std::optional<ProcessRecord> read_process(pid_t pid) {
  std::array<char, 32> path{};
  static_cast<void>(std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid));
  return read_stat(AT_FDCWD, path.data(), pid);
}

namespace {

// Each assignment lies between two zero bytes.
std::string read_environment(pid_t pid) {
  std::array<char, 32> path{};
  static_cast<void>(std::snprintf(path.data(), path.size(), "/proc/%d/environ", pid));
  const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::string text(1, '\0');
  std::array<char, 8192> piece{};
  while (file.is_open()) {
    const auto length = ::read(file.get(), piece.data(), piece.size());
    if (length <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(length));
  }
  return text;
}

}  // namespace

std::string assignment_of(pid_t pid, std::string_view name) {
  const std::string text = read_environment(pid);
  const auto at = text.find(std::string(1, '\0').append(name).append(1, '='));
  return at == std::string::npos ? std::string() : text.substr(at + 1, text.find('\0', at + 1) - at - 1);
}

bool was_started_with_any(pid_t pid, const std::set<std::string, std::less<>>& assignments) {
  const std::string text = read_environment(pid);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view each = rest.substr(0, rest.find('\0'));
    if (assignments.contains(each)) return true;
    rest.remove_prefix(std::min(rest.size(), each.size() + 1));
  }
  return false;
}

}  // namespace drover::process
