// cli/driver_probe.hpp: queries the driver from another process.
#pragma once

#include <chrono>

#include "drover/observe/doctor.hpp"

namespace drover::cli {

/// Starts `drover probe-driver` and waits for its report. If the driver hangs or crashes that process, a second one,
/// with at most ten seconds, reports what is known without initialising CUDA. Returns even if a process cannot be
/// killed. Throws if it cannot be started.
[[nodiscard]] DriverProbe probe_driver(std::chrono::milliseconds limit);

}  // namespace drover::cli
