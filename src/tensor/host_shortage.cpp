#include "tensor/host_shortage.hpp"

#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

namespace drover {
namespace {

constexpr std::uint64_t kShare = 16;

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number after `label`, which may have spaces before it.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view label) {
  const auto at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + label.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc{} ? std::optional(number) : std::nullopt;
}

}  // namespace

bool is_short_of_memory(const std::string& meminfo, const std::string& limit, const std::string& usage) {
  const auto total = number_after(meminfo, "MemTotal:");
  const auto available = number_after(meminfo, "MemAvailable:");
  if (total && available && *available < *total / kShare) return true;
  const auto most = number_after(limit, "");
  const auto used = number_after(usage, "");
  return most && used && (*used >= *most || *most - *used < *most / kShare);
}

// Inside of a container its own cgroup is the one at the root.
bool is_host_short_of_memory() {
  return is_short_of_memory(text_of("/proc/meminfo"), text_of("/sys/fs/cgroup/memory.max"),
                            text_of("/sys/fs/cgroup/memory.current"));
}

}  // namespace drover
