// benchmarks/queue/verdict.hpp: the targets of the queue, compared with the measurements.
#pragma once

#include <vector>

#include "support/report.hpp"

namespace drover::bench {

/// Prints the target ratios and the measured ones, or "not measured" for missing rows. Never fails.
void print_verdict(const std::vector<Row>& rows);

}  // namespace drover::bench
