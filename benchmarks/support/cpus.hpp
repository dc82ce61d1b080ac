// benchmarks/support/cpus.hpp: the processors on which a benchmark runs.
#pragma once

#include <vector>

namespace drover::bench {

/// The processors that this program may use, one per core, core 0 last: it handles most interrupts.
[[nodiscard]] std::vector<int> separate_cores();

/// Binds the calling thread to one processor, or to the program's original set if `cpu` is negative.
void pin_thread(int cpu);

}  // namespace drover::bench
