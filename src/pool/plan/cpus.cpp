#include "pool/plan/cpus.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace drover::pool {
namespace {

using Cpus = std::vector<int>;

// With fewer, helper threads (of a driver, a loader) would compete with the main thread.
constexpr std::size_t kLeastCores = 2;

Cpus common(Cpus left, Cpus right) {
  std::ranges::sort(left);
  std::ranges::sort(right);
  Cpus common;
  std::ranges::set_intersection(left, right, std::back_inserter(common));
  return common;
}

std::vector<Cpus> cores_in(const Cpus& cpus, const Machine& machine) {
  std::vector<Cpus> cores;
  for (const auto& core : machine.cores) {
    if (auto part = common(core, cpus); !part.empty()) cores.push_back(std::move(part));
  }
  return cores;
}

// The node with the fewest workers for its size. A worker counts on every node where it has a CPU.
std::size_t emptiest_node(const Machine& machine, const std::vector<Cpus>& homes) {
  const auto load_of = [&](const Cpus& node) {
    const auto here = std::ranges::count_if(homes, [&](const Cpus& home) { return !common(home, node).empty(); });
    return static_cast<double>(here + 1) / static_cast<double>(node.size());
  };
  const auto found = std::ranges::min_element(machine.nodes, {}, load_of);
  return static_cast<std::size_t>(found - machine.nodes.begin());
}

// The CPUs near each worker.
std::vector<Cpus> homes_of(const WorkerPlanOptions& options, const Machine& machine,
                           const std::vector<Chosen>& chosen) {
  std::vector<Cpus> homes;
  for (const auto& device : chosen)
    homes.push_back(device == nullptr ? Cpus{} : common(device->near_cpus, machine.cpus));
  const bool has_nodes = machine.nodes.size() > 1 && chosen.size() >= machine.nodes.size();
  for (auto& home : homes) {
    if (home.empty() && has_nodes) home = machine.nodes[emptiest_node(machine, homes)];
  }
  for (auto& home : homes) {
    if (home.empty() || home.size() < static_cast<std::size_t>(options.threads)) home = machine.cpus;
  }
  return homes;
}

Cpus part_of(const std::vector<Cpus>& cores, std::size_t place, std::size_t parts) {
  Cpus cpus;
  for (auto i = place * cores.size() / parts; i < (place + 1) * cores.size() / parts; ++i) {
    cpus.insert(cpus.end(), cores[i].begin(), cores[i].end());
  }
  std::ranges::sort(cpus);
  return cpus;
}

// Equal parts for workers with the same home; the whole home for each if parts would be too small.
std::vector<Cpus> parts_of(const Cpus& home, std::size_t parts, const WorkerPlanOptions& options,
                           const Machine& machine) {
  if (parts == 0) return {};
  const auto cores = cores_in(home, machine);
  std::vector<Cpus> dealt;
  for (std::size_t place = 0; place < parts; ++place) dealt.push_back(part_of(cores, place, parts));
  const auto threads = static_cast<std::size_t>(options.threads);
  const bool is_enough = cores.size() / parts >= kLeastCores &&
                         std::ranges::all_of(dealt, [&](const Cpus& part) { return part.size() >= threads; });
  return is_enough ? dealt : std::vector<Cpus>(parts, home);
}

int threads_for(const Cpus& cpus, std::size_t sharers, const Machine& machine, std::size_t workers) {
  const auto even = machine.cores.size() / workers;
  const auto own = cores_in(cpus, machine).size() / sharers;
  return static_cast<int>(std::max<std::size_t>(1, std::min(even, own)));
}

}  // namespace

std::vector<CpuShare> share_cpus(const WorkerPlanOptions& options, const Machine& machine,
                                 const std::vector<Chosen>& chosen) {
  std::vector<CpuShare> shares(chosen.size());
  std::map<Cpus, std::vector<std::size_t>> neighbours;
  const auto homes =
      options.affinity ? homes_of(options, machine, chosen) : std::vector<Cpus>(chosen.size(), machine.cpus);
  for (std::size_t i = 0; i < chosen.size(); ++i) neighbours[homes[i]].push_back(i);
  for (const auto& [home, workers] : neighbours) {
    const auto parts =
        options.affinity ? parts_of(home, workers.size(), options, machine) : std::vector<Cpus>(workers.size(), home);
    const bool is_dealt = parts.front().size() < home.size();
    for (std::size_t i = 0; i < workers.size(); ++i) {
      auto& share = shares[workers[i]];
      share.threads = options.threads > 0
                          ? options.threads
                          : threads_for(parts[i], is_dealt ? 1 : workers.size(), machine, chosen.size());
      if (parts[i] != machine.cpus) share.cpus = parts[i];
    }
  }
  return shares;
}

}  // namespace drover::pool
