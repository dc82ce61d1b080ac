#include <unistd.h>

#include "device/gpu_processes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/backend.hpp"
#include "drover/pool/worker_plan.hpp"
#include "pool/plan/topology.hpp"
#include "pool/plan/worker_plan_environment.hpp"
#include "pool/plan/worker_plan_users.hpp"

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

}  // namespace drover
