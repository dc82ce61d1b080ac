#include "tensor/memory/host_shortage.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string_view>

#include "drover/base/clock.hpp"

namespace drover::tensor {
namespace {

constexpr std::uint64_t kShare = 16;
constexpr std::chrono::milliseconds kCacheTime{100};
constexpr const char* kLimit = "/sys/fs/cgroup/memory.max";  // a container sees its own cgroup at the root

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number after `label` and spaces.
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

bool is_short_of_memory(const std::string& meminfo, const std::string& limit, const std::string& usage,
                        const std::string& stat) {
  const auto total = number_after(meminfo, "MemTotal:");
  const auto available = number_after(meminfo, "MemAvailable:");
  if (total && available && *available < *total / kShare) return true;
  const auto most = number_after(limit, "");
  const auto counted = number_after(usage, "");
  if (!most || !counted) return false;
  const std::uint64_t used = *counted - std::min(*counted, number_after(stat, "inactive_file").value_or(0));
  return used >= *most || *most - used < *most / kShare;
}

bool is_host_short_of_memory() {
  return is_short_of_memory(text_of("/proc/meminfo"), text_of(kLimit), text_of("/sys/fs/cgroup/memory.current"),
                            text_of("/sys/fs/cgroup/memory.stat"));
}

// Threads may read the files at the same time; they get the same result.
bool is_host_short_of_memory_cached() {
  static std::atomic<Clock::rep> read_at{0};
  static std::atomic<bool> is_short{false};
  const auto now = Clock::now().time_since_epoch();
  const Clock::duration before(read_at.load());
  if (before == Clock::duration::zero() || now - before >= kCacheTime) {
    is_short = is_host_short_of_memory();
    read_at = now.count();
  }
  return is_short;
}

std::optional<std::uint64_t> container_memory() { return container_memory(text_of(kLimit)); }

std::optional<std::uint64_t> container_memory(const std::string& limit) { return number_after(limit, ""); }

}  // namespace drover::tensor
