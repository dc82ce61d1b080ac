// device/cuda/visible_devices.hpp: interprets CUDA_VISIBLE_DEVICES as CUDA does, without calling CUDA.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "drover/device/info.hpp"

namespace drover::device::cuda {

/// The devices that a process sees, in order.
struct VisibleDevices {
  std::vector<std::size_t> order;      ///< indices in the list of present devices
  std::vector<std::string> unmatched;  ///< the first entry that is invalid or repeated, and all after it
};

/// Applies the text of the variable: nullopt if it is unset; an empty text hides all. Entries are numbers in PCI
/// order or prefixes of UUIDs. The first entry that names no device hides itself and all after it. A repeated entry
/// hides everything, because CUDA then refuses to start. A process sees one MIG instance at most. CUDA counts in PCI
/// order only with CUDA_DEVICE_ORDER=PCI_BUS_ID, or if all GPUs are of the same kind.
[[nodiscard]] VisibleDevices apply_visible_devices(const std::optional<std::string>& setting,
                                                   const std::vector<DeviceInfo>& present);

}  // namespace drover::device::cuda
