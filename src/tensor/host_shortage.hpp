// tensor/host_shortage.hpp: whether host memory is needed elsewhere; private.
#pragma once

#include <string>

namespace drover {

/// Whether less than a 16th of the machine's memory, or of what the container may have, is left. False where the
/// system does not say.
[[nodiscard]] bool is_host_short_of_memory();
/// The same, of what the system's files say: /proc/meminfo, and memory.max and memory.current of the cgroup.
[[nodiscard]] bool is_short_of_memory(const std::string& meminfo, const std::string& limit, const std::string& usage);

}  // namespace drover
