#include "pool/plan/machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/backend.hpp"
#include "pool/plan/environment.hpp"
#include "pool/plan/topology.hpp"

namespace drover {
namespace {

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

Machine look_at_machine(const std::string& sysfs) {
  const Backend& backend = select_backend().backend;
  Machine machine;
  for (const auto& info : backend.devices()) {
    machine.devices.push_back({.info = info,
                               .memory = memory_of(backend, info.index),
                               .users = users_of(gpu_processes(info)),
                               .near_cpus = cpus_near(info.pci, sysfs)});
  }
  machine.cpus = allowed_cpus();
  machine.cores = group_by_core(machine.cpus, sysfs);
  machine.nodes = group_by_node(machine.cpus, sysfs);
  machine.set = placement_variables();
  machine.process = ::getpid();
  return machine;
}

std::vector<DeviceUser> users_of(const std::vector<GpuProcess>& processes) {
  std::vector<DeviceUser> users;
  for (const auto& process : processes)
    users.push_back({.pid = process.pid, .name = program_of(process.pid), .bytes = process.bytes});
  return users;
}

Machine without(Machine machine, const std::vector<pid_t>& processes) {
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
