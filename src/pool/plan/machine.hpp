// pool/plan/machine.hpp: the CPUs and devices of this machine, as the kernel and the driver report them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/gpu_processes.hpp"
#include "drover/pool/worker_plan.hpp"

namespace drover::pool {

/// Parses a list like "0-3,8,10-11" into ascending, unique numbers; empty if it is invalid.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

/// CPUs that the calling thread may use, ascending. Throws if the system call fails.
[[nodiscard]] std::vector<int> allowed_cpus();

/// Groups `cpus` by core, in the order of each core's first CPU. A CPU of unknown topology is its own core. `sysfs`
/// is "/sys".
[[nodiscard]] std::vector<std::vector<int>> group_by_core(const std::vector<int>& cpus, const std::string& sysfs);

/// Groups `cpus` by NUMA node, without empty nodes; one group if the kernel reports no nodes.
[[nodiscard]] std::vector<std::vector<int>> group_by_node(const std::vector<int>& cpus, const std::string& sysfs);

/// CPUs near a PCI device ("0000:1b:00.0"), whether usable or not; empty if unknown, as for an emulated device.
[[nodiscard]] std::vector<int> cpus_near(const std::string& pci, const std::string& sysfs);

/// Adds the names of programs, where these processes are visible from here.
[[nodiscard]] std::vector<DeviceUser> users_of(const std::vector<device::GpuProcess>& processes);

/// The machine without these processes: they use no device, and their memory is free.
[[nodiscard]] Machine without(Machine machine, const std::vector<pid_t>& processes);

}  // namespace drover::pool
