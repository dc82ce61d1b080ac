// pool/plan/cpus.hpp: assigns CPUs and threads to workers.
#pragma once

#include <vector>

#include "pool/plan/devices.hpp"

namespace drover::pool {

/// CPUs and threads of one worker.
struct CpuShare {
  std::vector<int> cpus;  ///< empty: all CPUs of this process
  int threads = 1;        ///< threads of numerical libraries
};

/// One share for each worker. Workers whose devices are near the same CPUs get equal parts of those, in whole cores,
/// if each part has at least two cores and the requested threads; otherwise they share all of them. Workers without
/// near CPUs are distributed over several NUMA nodes, if there are enough workers. A share never has fewer CPUs than
/// the requested threads.
[[nodiscard]] std::vector<CpuShare> share_cpus(const WorkerPlanOptions& options, const Machine& machine,
                                               const std::vector<Chosen>& chosen);

}  // namespace drover::pool
