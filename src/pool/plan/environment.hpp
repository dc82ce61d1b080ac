// pool/plan/environment.hpp: which variables a worker is given.
#pragma once

#include <map>
#include <string>

#include "pool/plan/cpus.hpp"

namespace drover {

/// The variables of this process that planning looks at.
[[nodiscard]] std::map<std::string, std::string> placement_variables();

/// Fills `environment` and `unset` from the rest of the plan, for one of so many workers on the same device. What the
/// user has set for numerical libraries stays, unless `options.threads` says otherwise; where OMP_NUM_THREADS is set,
/// the other libraries follow it.
void fill_environment(WorkerPlan& plan, const WorkerPlanOptions& options, const Machine& machine, int sharers);

}  // namespace drover
