// pool/plan/admission.hpp: whether the devices can take the workers.
#pragma once

#include <vector>

#include "pool/plan/devices.hpp"

namespace drover {

/// Throws unless every device can take the workers that were given to it: exclusive use, compute modes, MPS, memory
/// budgets. See plan_workers.
void admit(const WorkerPlanOptions& options, const Machine& machine, const std::vector<Chosen>& chosen);

}  // namespace drover
