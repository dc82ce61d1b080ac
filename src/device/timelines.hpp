// device/timelines.hpp: whether streams may use timeline words.
#pragma once

namespace drover {

/// DROVER_TIMELINES=0 lets every device say that its streams cannot use words, so that a program's other way is
/// tested where they can. Throws `Errc::invalid_argument` for what is neither 0 nor 1.
[[nodiscard]] bool timelines_allowed();

/// What to do without them.
inline constexpr const char* kWithoutTimelines =
    "synchronize the stream and store the value from the CPU (timeline_store); DROVER_TIMELINES=0 switches them off";

}  // namespace drover
