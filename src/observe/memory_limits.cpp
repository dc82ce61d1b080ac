#include "observe/memory_limits.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "observe/text_files.hpp"

namespace drover::observe {
namespace {

// Version 1 writes "no limit" as the largest multiple of the page size that fits.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;

// The names of the same files in the two versions.
struct Dialect {
  std::string_view file_system;
  const char* limit;
  const char* usage;
  const char* stat;
  std::string_view droppable;
};

constexpr Dialect kVersion2 = {"cgroup2", "memory.max", "memory.current", "memory.stat", "inactive_file"};
constexpr Dialect kVersion1 = {"cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat",
                               "total_inactive_file"};

struct Mount {
  std::string root;   // the mounted cgroup
  std::string point;  // its mount point
};

bool lists(std::string_view names, std::string_view name) {
  const auto pieces = split(names, ',');
  return std::ranges::find(pieces, name) != pieces.end();
}

// Line: id parent device root point options [tags] - type source super-options
std::optional<Mount> find_mount(std::string_view mounts, const Dialect& dialect) {
  for (const auto line : split(mounts, '\n')) {
    const auto fields = words(line);
    const auto dash = std::ranges::find(fields, std::string_view("-"));
    if (fields.size() < 5 || fields.end() - dash < 4 || dash[1] != dialect.file_system) continue;
    if (dialect.file_system == kVersion1.file_system && !lists(dash[3], "memory")) continue;
    return Mount{std::string(fields[3]), std::string(fields[4])};
  }
  return std::nullopt;
}

// Line: hierarchy:controllers:path; version 2 has no controllers.
std::optional<std::string> find_path(std::string_view cgroups, const Dialect& dialect) {
  for (const auto line : split(cgroups, '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool is_ours =
        dialect.file_system == kVersion2.file_system ? controllers.empty() : lists(controllers, "memory");
    if (is_ours) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

// The path of our cgroup below the mount. In a container the root of the mount is often that cgroup itself, or lies
// outside the cgroup namespace; then the mount point is the nearest cgroup that can be read.
std::string below_mount(std::string path, const std::string& mount_root) {
  if (mount_root != "/") {
    const bool is_inside = path == mount_root || path.starts_with(mount_root + "/");
    path = is_inside ? path.substr(mount_root.size()) : "";
  }
  if (path.find("..") != std::string::npos || path == "/") path.clear();
  return path;
}

std::optional<MemoryLimit> limit_of(const std::filesystem::path& folder, const std::string& name,
                                    const Dialect& dialect) {
  const auto limit = number(read_text(folder / dialect.limit));
  if (!limit || *limit >= kUnlimited) return std::nullopt;
  const auto usage = number(read_text(folder / dialect.usage)).value_or(0);
  const auto droppable = number_after(read_text(folder / dialect.stat), dialect.droppable).value_or(0);
  return MemoryLimit{
      .cgroup = name.empty() ? "/" : name, .limit = *limit, .used = usage - std::min(usage, droppable)};
}

void append_limits(std::vector<MemoryLimit>& limits, const std::filesystem::path& root, const Dialect& dialect) {
  const auto mount = find_mount(read_text(root / "proc/self/mountinfo"), dialect);
  const auto path = find_path(read_text(root / "proc/self/cgroup"), dialect);
  if (!mount || !path) return;
  const auto point = root / std::filesystem::path(mount->point).relative_path();
  for (auto name = below_mount(*path, mount->root);; name.resize(name.find_last_of('/'))) {
    if (const auto limit = limit_of(point / std::filesystem::path(name).relative_path(), name, dialect)) {
      limits.push_back(*limit);
    }
    if (name.find('/') == std::string::npos) return;
  }
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root) {
  std::vector<MemoryLimit> limits;
  append_limits(limits, root, kVersion2);
  append_limits(limits, root, kVersion1);
  return limits;
}

}  // namespace drover::observe
