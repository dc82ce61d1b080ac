#include "pool/plan/worker_plan_users.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace drover {
namespace {

std::string program_of(pid_t pid) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::getline(file, name);
  return name;
}

}  // namespace

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
