#include "support/process_tree.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

namespace drover::test {
namespace {

namespace fs = std::filesystem;

// Empty if the process has ended meanwhile or cannot be read.
std::string content_of(const fs::path& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

std::vector<fs::path> numbered_entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    const auto name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos) found.push_back(entry->path());
  }
  return found;
}

std::string command_of(const fs::path& folder, const std::string& name) {
  auto text = content_of(folder / "cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text.empty() ? "[" + name + "]" : text;
}

// The name in parentheses may contain anything, so fields are counted from the last parenthesis.
std::optional<ProcessEntry> read_process(const fs::path& folder) {
  const auto text = content_of(folder / "stat");
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 4 >= text.size()) return std::nullopt;
  const auto number = [](const std::string& digits) { return static_cast<pid_t>(std::stol(digits)); };
  return ProcessEntry{.pid = number(folder.filename().string()),
                      .parent = number(text.substr(close + 4)),
                      .state = text[close + 2],
                      .command = text.substr(open + 1, close - open - 1)};
}

std::string line_of(const fs::path& file) {
  auto text = content_of(file);
  return text.substr(0, text.find('\n'));
}

std::string state_line(const fs::path& thread) {
  const auto status = content_of(thread / "status");
  const auto start = status.find("State:");
  if (start == std::string::npos) return "State: unknown";
  return status.substr(start, status.find('\n', start) - start);
}

}  // namespace

std::vector<ProcessEntry> descendants_of(const std::vector<pid_t>& roots) {
  std::multimap<pid_t, ProcessEntry> children;
  for (const auto& folder : numbered_entries("/proc")) {
    if (auto process = read_process(folder)) children.emplace(process->parent, std::move(*process));
  }
  std::vector<ProcessEntry> found;
  const auto add_children_of = [&](pid_t parent) {
    const auto [first, last] = children.equal_range(parent);
    for (auto child = first; child != last; ++child) found.push_back(std::move(child->second));
    children.erase(first, last);  // a root may be a descendant of another root
  };
  for (const pid_t root : roots) add_children_of(root);
  std::size_t looked_at = 0;
  while (looked_at < found.size()) add_children_of(found[looked_at++].pid);
  for (auto& process : found) {
    process.command = command_of(fs::path("/proc") / std::to_string(process.pid), process.command);
  }
  return found;
}

std::vector<ProcessEntry> descendants_of(pid_t root) { return descendants_of(std::vector{root}); }

std::string to_string(const ProcessEntry& process) {
  return fmt::format("pid {}, state {}, child of {}: {}", process.pid, process.state, process.parent,
                     process.command);
}

std::string kernel_stacks_of(pid_t root) {
  std::vector<pid_t> pids = {root};
  for (const auto& process : descendants_of(root)) pids.push_back(process.pid);
  std::string text;
  for (const pid_t pid : pids) {
    const auto folder = fs::path("/proc") / std::to_string(pid);
    text += fmt::format("process {}: {}\n", pid, command_of(folder, line_of(folder / "comm")));
    for (const auto& thread : numbered_entries(folder / "task")) {
      text += fmt::format("  thread {} '{}' {}, wchan: {}, syscall: {}\n", thread.filename().string(),
                          line_of(thread / "comm"), state_line(thread), line_of(thread / "wchan"),
                          line_of(thread / "syscall"));
    }
  }
  return text;
}

}  // namespace drover::test
