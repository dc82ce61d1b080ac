#include "pool/worker_plan_users.hpp"

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

}  // namespace drover
