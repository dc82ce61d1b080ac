// base/duration.hpp: human-readable durations.
#pragma once

#include <chrono>
#include <string>

namespace drover {

/// "40 ms", "1.5 s", "3 min 4 s", "2 h 5 min", "3 d 4 h"; "0 s" if negative or shorter than a millisecond.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace drover
