// pool/plan/topology.hpp: CPUs, cores and memory nodes as the kernel tells them; private to the library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Reads the kernel's lists: "0-3,8,10-11". Ascending, each once. Empty if the text is anything else.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

/// CPUs that the calling thread may use, ascending. Throws if the kernel does not say.
[[nodiscard]] std::vector<int> allowed_cpus();

/// `cpus` by core: hyperthreads of one core together, in the order of their first. A CPU of which nothing is known is
/// a core by itself. `sysfs` is "/sys".
[[nodiscard]] std::vector<std::vector<int>> group_by_core(const std::vector<int>& cpus, const std::string& sysfs);

/// `cpus` by memory node, nodes without one of them left out; all together where the kernel knows no nodes.
[[nodiscard]] std::vector<std::vector<int>> group_by_node(const std::vector<int>& cpus, const std::string& sysfs);

/// CPUs near a PCI device ("0000:1b:00.0"), usable or not. Empty if nothing is known, as for an emulated device.
[[nodiscard]] std::vector<int> cpus_near(const std::string& pci, const std::string& sysfs);

}  // namespace drover
