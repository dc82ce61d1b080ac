// tensor/memory/host_shortage.hpp: whether the machine is short of host memory; private.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace drover::tensor {

/// Whether less than a 16th of the machine's memory, or of the container's limit, is left. False if unknown.
[[nodiscard]] bool is_host_short_of_memory();
/// Cached for 100 ms, for frequent callers.
[[nodiscard]] bool is_host_short_of_memory_cached();
/// The same, from the contents of /proc/meminfo, and of memory.max, memory.current and memory.stat of the cgroup.
/// Inactive pages of files count as free.
[[nodiscard]] bool is_short_of_memory(const std::string& meminfo, const std::string& limit, const std::string& usage,
                                      const std::string& stat = {});

/// Memory limit of the container in bytes; nullopt if unlimited.
[[nodiscard]] std::optional<std::uint64_t> container_memory();
/// The same, from the contents of memory.max.
[[nodiscard]] std::optional<std::uint64_t> container_memory(const std::string& limit);

}  // namespace drover::tensor
