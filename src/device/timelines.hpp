// device/timelines.hpp: whether streams may use timeline words.
#pragma once

namespace drover::device {

/// False if DROVER_TIMELINES=0, with which every device reports that it has no timelines; programs use it to test
/// their fallback. Throws `Errc::invalid_argument` for values other than 0 and 1.
[[nodiscard]] bool timelines_allowed();

/// The remedy if they may not.
inline constexpr const char* kWithoutTimelines =
    "synchronize the stream and store the value from the CPU (timeline_store); DROVER_TIMELINES=0 disables stream "
    "memory operations";

}  // namespace drover::device
