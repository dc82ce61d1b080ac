// observe/shared_waits.hpp: finds the locks and other objects, shared by processes, for which threads wait.
#pragma once

#include <filesystem>
#include <vector>

#include "observe/tree_rules.hpp"
#include "process/inspect/process_facts.hpp"

namespace drover::observe {

/// The waits of all threads of these processes for semaphores of multiprocessing and for objects of drover. Reads the
/// memory of the processes; what cannot be read is left out.
[[nodiscard]] std::vector<SharedWait> find_shared_waits(const std::vector<process::ProcessFacts>& processes,
                                                        const std::filesystem::path& proc);

}  // namespace drover::observe
