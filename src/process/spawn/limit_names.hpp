// process/spawn/limit_names.hpp: resource limits by name, for error texts.
#pragma once

#include <string>

namespace drover {

/// "RLIMIT_NOFILE", or "limit 99" for one that has no name here.
[[nodiscard]] std::string limit_name(int resource);

}  // namespace drover
