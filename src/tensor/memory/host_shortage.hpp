// tensor/memory/host_shortage.hpp: whether host memory is needed elsewhere; private.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace drover {

/// Whether less than a 16th of the machine's memory, or of what the container may have, is left. False where the
/// system does not say.
[[nodiscard]] bool is_host_short_of_memory();
/// The same, as it was a tenth of a second ago at most: for who asks often.
[[nodiscard]] bool is_host_short_of_memory_lately();
/// The same, of what the system's files say: /proc/meminfo, and memory.max, memory.current and memory.stat of the
/// cgroup. Pages of files that are not in use count as left.
[[nodiscard]] bool is_short_of_memory(const std::string& meminfo, const std::string& limit, const std::string& usage,
                                      const std::string& stat = {});

/// The bytes that the container may have, if there is such a limit.
[[nodiscard]] std::optional<std::uint64_t> container_memory();
/// The same, of what memory.max says.
[[nodiscard]] std::optional<std::uint64_t> container_memory(const std::string& limit);

}  // namespace drover
