// observe/memory_limits.hpp: memory limits from cgroups of both versions.
#pragma once

#include <filesystem>
#include <vector>

#include "drover/observe/doctor.hpp"

namespace drover::observe {

/// Every limit that applies to this process: that of its own cgroup first, then those of its ancestors up to the
/// mount; version 2 before version 1. Cgroups without a limit are omitted.
[[nodiscard]] std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root);

}  // namespace drover::observe
