// pool/plan/cpus.hpp: which CPUs each worker gets, and how many threads.
#pragma once

#include <vector>

#include "pool/plan/devices.hpp"

namespace drover {

/// CPUs and threads of one worker.
struct CpuShare {
  std::vector<int> cpus;  ///< empty: all that this process may use
  int threads = 1;        ///< what numerical libraries should start
};

/// One for each worker. Workers whose devices are near the same CPUs get equal parts of those, whole cores, if each
/// part has two cores and room for the threads that were asked for; else they share them. Workers without near CPUs
/// are dealt to memory nodes where there are several and enough workers. Never fewer CPUs than threads asked for.
[[nodiscard]] std::vector<CpuShare> share_cpus(const WorkerPlanOptions& options, const Machine& machine,
                                               const std::vector<Chosen>& chosen);

}  // namespace drover
