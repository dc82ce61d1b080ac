// process/spawn/limit_names.hpp: names of resource limits, for error texts.
#pragma once

#include <string>

namespace drover::process {

/// "RLIMIT_NOFILE", or "limit 99" for an unknown one.
[[nodiscard]] std::string limit_name(int resource);

}  // namespace drover::process
