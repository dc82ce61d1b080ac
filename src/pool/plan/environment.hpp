// pool/plan/environment.hpp: the environment variables of workers.
#pragma once

#include <map>
#include <string>

#include "pool/plan/cpus.hpp"

namespace drover::pool {

/// The variables of this process that affect planning.
[[nodiscard]] std::map<std::string, std::string> placement_variables();

/// Fills `environment` and `unset` from the rest of the plan, for one of `sharers` workers on the same device. The
/// user's variables for numerical libraries stay, unless `options.threads` is set; if OMP_NUM_THREADS is set, the
/// other libraries follow it.
void fill_environment(WorkerPlan& plan, const WorkerPlanOptions& options, const Machine& machine, int sharers);

}  // namespace drover::pool
