#include "process/inspect/memory_kills.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover::process {
namespace {

// Reads a small kernel file; empty if it cannot be read.
std::string content_of(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 8192> piece{};
  while (file.is_open()) {
    const auto length = ::read(file.get(), piece.data(), piece.size());
    if (length <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(length));
  }
  return text;
}

std::optional<std::uint64_t> count_in(std::string_view text) {
  constexpr std::string_view kKey = "oom_kill ";
  for (auto at = text.find(kKey); at != std::string_view::npos; at = text.find(kKey, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const char* const first = text.data() + at + kKey.size();
    std::uint64_t count = 0;
    if (std::from_chars(first, text.data() + text.size(), count).ec == std::errc{}) return count;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> count_in_file(const std::string& path) {
  return path.empty() ? std::nullopt : count_in(content_of(path));
}

// Lines "hierarchy:controllers:path"; version 2 has no controllers.
std::string path_of_group(std::string_view groups, std::string_view controller) {
  while (!groups.empty()) {
    const auto line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(groups.size(), line.size() + 1));
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controller) return std::string(line.substr(second + 1));
  }
  return {};
}

}  // namespace

MemoryKillFiles find_memory_kill_files(const std::string& root) {
  const auto groups = content_of(root + "/proc/self/cgroup");
  const auto folder = root + "/sys/fs/cgroup";
  // In a container the cgroup of this process may be mounted as the root, whatever its path says.
  const std::vector<std::string> candidates = {
      folder + path_of_group(groups, "") + "/memory.events", folder + "/memory.events",
      folder + "/memory" + path_of_group(groups, "memory") + "/memory.oom_control",
      folder + "/memory/memory.oom_control"};
  MemoryKillFiles files;
  for (const auto& candidate : candidates) {
    if (!count_in_file(candidate)) continue;
    files.of_group = candidate;
    break;
  }
  if (const auto machine = root + "/proc/vmstat"; count_in_file(machine)) files.of_machine = machine;
  return files;
}

detail::MemoryKills read_memory_kills(const MemoryKillFiles& files) {
  return {.of_group = count_in_file(files.of_group), .of_machine = count_in_file(files.of_machine)};
}

detail::MemoryKills memory_kills() {
  static const MemoryKillFiles files = find_memory_kill_files();
  return read_memory_kills(files);
}

KillReason judge_kill(const detail::MemoryKills& before, const detail::MemoryKills& after) noexcept {
  if (before.of_group && after.of_group && *after.of_group > *before.of_group) return KillReason::out_of_memory;
  // A child may have moved to another cgroup, so only the count of the machine can rule out a kill.
  if (!before.of_machine || !after.of_machine) return KillReason::unknown;
  if (*after.of_machine == *before.of_machine) return KillReason::somebody;
  return before.of_group && after.of_group ? KillReason::unknown : KillReason::out_of_memory;
}

}  // namespace drover::process
