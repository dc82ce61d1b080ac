// benchmarks/device/workload.hpp: slabs and copies, on every backend that has a device.
#pragma once

#include <vector>

#include "drover/device/backend.hpp"
#include "support/report.hpp"

namespace drover::bench {

/// Creating, exporting, importing, mapping and releasing slabs.
void measure_slabs(Backend& backend, bool is_smoke, std::vector<Row>& rows);

/// Copies from and to host memory, unregistered and registered.
void measure_copies(Backend& backend, bool is_smoke, std::vector<Row>& rows);

/// The peer of the above on a GPU: host memory from the driver itself.
void measure_driver_memory(Backend& backend, bool is_smoke, std::vector<Row>& rows);

/// Timelines from stream to stream to the CPU, and blocking waits.
void measure_timelines(Backend& backend, bool is_smoke, std::vector<Row>& rows);

/// "cuda:0, 64.0 MiB".
[[nodiscard]] std::string workload_name(const Backend& backend, std::size_t bytes);

}  // namespace drover::bench
