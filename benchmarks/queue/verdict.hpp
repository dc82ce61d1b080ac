// benchmarks/queue/verdict.hpp: what was wanted of the queue, beside what was measured.
#pragma once

#include <vector>

#include "support/report.hpp"

namespace drover::bench {

/// Prints the ratios drover is held to. Says so where the rows for one are missing; never fails.
void print_verdict(const std::vector<Row>& rows);

}  // namespace drover::bench
