// benchmarks/support/cpus.hpp: on which processors the processes of a benchmark run.
#pragma once

#include <vector>

namespace drover::bench {

/// The processors this program may use, one of each core, the core of number 0 last: it has most interrupts.
[[nodiscard]] std::vector<int> separate_cores();

/// Binds the calling thread to one processor; to all that the program began with if `cpu` is negative.
void pin_thread(int cpu);

}  // namespace drover::bench
