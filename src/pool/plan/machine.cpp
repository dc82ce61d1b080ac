#include "pool/plan/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/backend.hpp"
#include "pool/plan/environment.hpp"

namespace drover {
namespace {

constexpr int kMostCpus = 1 << 16;  // more are not from the kernel

struct Range {
  int first = 0;
  int last = 0;
};

std::optional<int> read_number(std::string_view& text) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || value < 0 || value >= kMostCpus) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
  return value;
}

// Takes "8" or "0-3" from the front.
std::optional<Range> read_range(std::string_view& text) {
  const auto first = read_number(text);
  if (!first) return std::nullopt;
  if (!text.starts_with('-')) return Range{*first, *first};
  text.remove_prefix(1);
  const auto last = read_number(text);
  if (!last || *last < *first) return std::nullopt;
  return Range{*first, *last};
}

std::vector<int> read_cpu_list(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return pool::parse_cpu_list(line);
}

std::vector<int> both(const std::vector<int>& left, const std::vector<int>& right) {
  std::vector<int> common;
  std::ranges::set_intersection(left, right, std::back_inserter(common));
  return common;
}

// Sorted by number, because as text node10 comes before node2.
std::vector<std::filesystem::path> node_folders(const std::string& sysfs) {
  std::vector<std::pair<int, std::filesystem::path>> found;
  std::error_code failed;
  const std::filesystem::directory_iterator entries(sysfs + "/devices/system/node", failed);
  if (failed) return {};
  for (const auto& entry : entries) {
    const auto name = entry.path().filename().string();
    std::string_view rest = name;
    if (!rest.starts_with("node")) continue;
    rest.remove_prefix(4);
    if (const auto number = read_number(rest); number && rest.empty()) found.emplace_back(*number, entry.path());
  }
  std::ranges::sort(found);
  std::vector<std::filesystem::path> folders;
  for (auto& [number, path] : found) folders.push_back(std::move(path));
  return folders;
}

std::optional<MemoryInfo> memory_of(const Backend& backend, int device) {
  try {
    return backend.memory_info(device);
  } catch (const Error& error) {
    log(LogLevel::debug, error.message());
    return std::nullopt;
  }
}

std::string program_of(pid_t pid) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::getline(file, name);
  return name;
}

}  // namespace

std::vector<int> pool::parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::set<int> cpus;
  while (!text.empty()) {
    const auto range = read_range(text);
    if (!range) return {};
    for (int cpu = range->first; cpu <= range->last; ++cpu) cpus.insert(cpu);
    if (text.empty()) break;
    if (text.front() != ',' || text.size() == 1) return {};
    text.remove_prefix(1);
  }
  return {cpus.begin(), cpus.end()};
}

std::vector<int> pool::allowed_cpus() {
  // The kernel rejects a set smaller than its own, and does not report its size.
  for (int most = CPU_SETSIZE; most <= kMostCpus; most *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(static_cast<std::size_t>(most)),
                                                               [](cpu_set_t* old) { CPU_FREE(old); });
    const auto bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(most));
    if (set == nullptr) break;
    CPU_ZERO_S(bytes, set.get());
    if (sys::call("sched_getaffinity", ::sched_getaffinity, 0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  throw_errno("sched_getaffinity", "the CPUs of the calling thread");
}

std::vector<std::vector<int>> pool::group_by_core(const std::vector<int>& cpus, const std::string& sysfs) {
  std::vector<std::vector<int>> cores;
  std::set<int> done;
  for (const int cpu : cpus) {
    if (done.contains(cpu)) continue;
    const auto siblings = fmt::format("{}/devices/system/cpu/cpu{}/topology/thread_siblings_list", sysfs, cpu);
    auto core = both(read_cpu_list(siblings), cpus);
    std::erase_if(core, [&](int sibling) { return done.contains(sibling); });
    if (std::ranges::find(core, cpu) == core.end()) core = {cpu};
    done.insert(core.begin(), core.end());
    cores.push_back(std::move(core));
  }
  return cores;
}

std::vector<std::vector<int>> pool::group_by_node(const std::vector<int>& cpus, const std::string& sysfs) {
  std::vector<std::vector<int>> nodes;
  for (const auto& folder : node_folders(sysfs)) {
    if (auto node = both(read_cpu_list(folder / "cpulist"), cpus); !node.empty()) nodes.push_back(std::move(node));
  }
  if (nodes.empty()) nodes.push_back(cpus);
  return nodes;
}

std::vector<int> pool::cpus_near(const std::string& pci, const std::string& sysfs) {
  if (pci.empty()) return {};
  return read_cpu_list(fmt::format("{}/bus/pci/devices/{}/local_cpulist", sysfs, pci));
}

Machine look_at_machine(const std::string& sysfs) {
  const Backend& backend = select_backend().backend;
  Machine machine;
  for (const auto& info : backend.devices()) {
    machine.devices.push_back({.info = info,
                               .memory = memory_of(backend, info.index),
                               .users = pool::users_of(device::gpu_processes(info)),
                               .near_cpus = pool::cpus_near(info.pci, sysfs)});
  }
  machine.cpus = pool::allowed_cpus();
  machine.cores = pool::group_by_core(machine.cpus, sysfs);
  machine.nodes = pool::group_by_node(machine.cpus, sysfs);
  machine.set = pool::placement_variables();
  machine.process = ::getpid();
  return machine;
}

std::vector<DeviceUser> pool::users_of(const std::vector<device::GpuProcess>& processes) {
  std::vector<DeviceUser> users;
  for (const auto& process : processes)
    users.push_back({.pid = process.pid, .name = program_of(process.pid), .bytes = process.bytes});
  return users;
}

Machine pool::without(Machine machine, const std::vector<pid_t>& processes) {
  const auto is_left_out = [&](const DeviceUser& user) { return std::ranges::count(processes, user.pid) != 0; };
  for (MachineDevice& device : machine.devices) {
    std::uint64_t theirs = 0;
    for (const DeviceUser& user : device.users) theirs += is_left_out(user) ? user.bytes : 0;
    if (auto& memory = device.memory; memory.has_value())
      memory->free = std::min(memory->total, memory->free + theirs);
    std::erase_if(device.users, is_left_out);
  }
  return machine;
}

}  // namespace drover
