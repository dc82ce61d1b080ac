// observe/memory_limits.hpp: memory limits from cgroups of both versions; private to the library.
#pragma once

#include <filesystem>
#include <vector>

#include "drover/observe/facts.hpp"

namespace drover::observe {

/// Every limit that binds this process: its own cgroup first, then each above it up to the mount, version 2 before
/// version 1. Cgroups without a limit are left out.
[[nodiscard]] std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root);

}  // namespace drover::observe
