#include "support/cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::bench {
namespace {

const cpu_set_t& first_set() {
  static const cpu_set_t set = [] {
    cpu_set_t allowed{};
    if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) throw_errno("sched_getaffinity", "this thread");
    return allowed;
  }();
  return set;
}

// The same text for all processors of one core, and unique if the system does not report the core.
std::string core_of(int cpu) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string siblings;
  return std::getline(file, siblings) ? siblings : std::to_string(cpu);
}

}  // namespace

std::vector<int> separate_cores() {
  std::vector<int> cpus;
  std::set<std::string> seen;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &first_set()) != 0 && seen.insert(core_of(cpu)).second)
      cpus.push_back(cpu);
  }
  if (!cpus.empty() && cpus.front() == 0) std::ranges::rotate(cpus, cpus.begin() + 1);
  return cpus;
}

void pin_thread(int cpu) {
  cpu_set_t set = first_set();
  if (cpu >= 0) {
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
  }
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) {
    throw_errno("sched_setaffinity", fmt::format("processor {}", cpu));
  }
}

}  // namespace drover::bench
