// pool/plan/admission.hpp: checks that the devices can take the workers.
#pragma once

#include <vector>

#include "pool/plan/devices.hpp"

namespace drover::pool {

/// Throws unless every device can take its workers: exclusive use, compute modes, MPS, memory budgets. See
/// plan_workers.
void admit(const WorkerPlanOptions& options, const Machine& machine, const std::vector<Chosen>& chosen);

}  // namespace drover::pool
