// drover/base/duration.hpp: spans of time for people.
#pragma once

#include <chrono>
#include <string>

namespace drover {

/// "40 ms", "1.5 s", "3 min 4 s", "2 h 5 min", "3 d 4 h"; what is shorter than a millisecond, or negative, is "0 s".
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace drover
