#include "pool/plan/environment.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace drover::pool {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kBackend = "DROVER_BACKEND";
// Lists CPUs of the whole machine, so all workers would run on the same ones.
constexpr const char* kOpenMpCpus = "GOMP_CPU_AFFINITY";
constexpr const char* kConnections = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* kCopyConnections = "CUDA_DEVICE_MAX_COPY_CONNECTIONS";
constexpr int kOwnConnections = 8;  // the default of a process, roughly
constexpr int kOwnCopyConnections = 4;
constexpr int kFewestConnections = 2;  // so that one waiting stream does not block all others

constexpr std::array kThreadVariables = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                         "NUMEXPR_NUM_THREADS"};

struct Variable {
  const char* name;
  const char* value;
};
// Keeps frameworks from allocating all memory of a shared GPU at start.
constexpr std::array kGpuVariables = {Variable{"TF_FORCE_GPU_ALLOW_GROWTH", "true"},
                                      Variable{"XLA_PYTHON_CLIENT_PREALLOCATE", "false"}};

void set_unless_set(WorkerPlan& plan, const Machine& machine, const char* name, const std::string& value) {
  if (!machine.set.contains(name)) plan.environment.emplace_back(name, value);
}

std::string visible_gpus(const DeviceInfo& own, const WorkerPlanOptions& options, const Machine& machine) {
  std::string text = uuid_text(own);
  if (!options.sees_all || own.is_mig_instance) return text;  // a process sees one MIG instance at most
  for (const auto& device : machine.devices) {
    const bool is_other = device.info.backend == BackendKind::cuda && device.info.uuid != own.uuid;
    if (is_other && !device.info.is_mig_instance) text += "," + uuid_text(device.info);
  }
  return text;
}

// The driver creates contexts one after another, and faster with fewer hardware queues: workers of one GPU share the
// default of a process. Clients of MPS use queues of their server.
void share_connections(WorkerPlan& plan, const WorkerPlanOptions& options, const Machine& machine, int sharers) {
  if (sharers < 2 || options.mps || machine.set.contains(kConnections)) return;
  plan.environment.emplace_back(kConnections,
                                std::to_string(std::max(kFewestConnections, kOwnConnections / sharers)));
  set_unless_set(plan, machine, kCopyConnections, std::to_string(std::max(1, kOwnCopyConnections / sharers)));
}

void show_gpu(WorkerPlan& plan, const DeviceInfo& own, const WorkerPlanOptions& options, const Machine& machine) {
  plan.environment.emplace_back(kVisible, visible_gpus(own, options, machine));
  plan.environment.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  for (const auto& [name, value] : kGpuVariables) set_unless_set(plan, machine, name, value);
}

// Without these a worker on fewer CPUs would have fewer and larger emulated devices.
void show_emulated_devices(WorkerPlan& plan, const Machine& machine) {
  if (machine.devices.empty() || machine.devices.front().info.backend != BackendKind::host) return;
  const auto bytes = machine.devices.front().info.memory_total;
  plan.environment.emplace_back("DROVER_HOST_DEVICES", std::to_string(machine.devices.size()));
  plan.environment.emplace_back("DROVER_HOST_MEMORY", std::to_string(bytes));
}

void hide_gpus(WorkerPlan& plan, const Machine& machine) {
  plan.environment.emplace_back(kVisible, "");
  const auto backend = machine.set.find(kBackend);
  if (backend != machine.set.end() && backend->second == "cuda") plan.environment.emplace_back(kBackend, "host");
}

// A requested number applies to all libraries. Otherwise OMP_NUM_THREADS stays, which the other libraries follow.
void limit_threads(WorkerPlan& plan, const WorkerPlanOptions& options, const Machine& machine) {
  const auto count = std::to_string(plan.threads);
  if (options.threads == 0 && machine.set.contains(kThreadVariables.front())) return;
  for (const char* const name : kThreadVariables) {
    if (options.threads > 0 || !machine.set.contains(name)) plan.environment.emplace_back(name, count);
  }
}

}  // namespace

std::map<std::string, std::string> placement_variables() {
  std::map<std::string, std::string> found;
  const auto add = [&](const char* name) {
    if (const char* const text = std::getenv(name); text != nullptr) found[name] = text;
  };
  for (const char* const name : {kVisible, kBackend, kOpenMpCpus, kConnections, kCopyConnections}) add(name);
  for (const char* const name : kThreadVariables) add(name);
  for (const auto& variable : kGpuVariables) add(variable.name);
  return found;
}

void fill_environment(WorkerPlan& plan, const WorkerPlanOptions& options, const Machine& machine, int sharers) {
  if (!plan.device) {
    hide_gpus(plan, machine);
  } else if (plan.device->info.backend == BackendKind::cuda) {
    show_gpu(plan, plan.device->info, options, machine);
    share_connections(plan, options, machine, sharers);
  }
  show_emulated_devices(plan, machine);
  limit_threads(plan, options, machine);
  const bool is_bound = !plan.placement.cpus.empty();
  if (is_bound && machine.set.contains(kOpenMpCpus)) plan.unset.emplace_back(kOpenMpCpus);
}

}  // namespace drover::pool
