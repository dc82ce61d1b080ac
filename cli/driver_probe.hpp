// cli/driver_probe.hpp: asks the driver from a safe distance.
#pragma once

#include <chrono>

#include "drover/observe/facts.hpp"

namespace drover::cli {

/// Starts `drover probe-driver` and waits for its report. A driver that hangs or crashes does so in that process;
/// then it is asked once more, for ten seconds at most, without initialising CUDA, so that what can be known is
/// known. Returns even if the asking process cannot be killed. Throws if it cannot be started.
[[nodiscard]] DriverProbe probe_driver(std::chrono::milliseconds limit);

}  // namespace drover::cli
