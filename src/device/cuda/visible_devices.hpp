// device/cuda/visible_devices.hpp: CUDA_VISIBLE_DEVICES as CUDA reads it, without asking CUDA.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "drover/device/info.hpp"

namespace drover::cuda {

/// Which of the present devices a process sees, and in which order.
struct VisibleDevices {
  std::vector<std::size_t> order;      ///< places in the list of present devices
  std::vector<std::string> unmatched;  ///< the first entry that names nothing (or repeats one), and all after it
};

/// Applies the variable's text (nothing if it is unset; an empty text hides all). Entries are numbers in PCI order
/// or beginnings of UUIDs. The first entry that names nothing hides itself and all after it; an entry that repeats
/// one before it hides everything, since CUDA then refuses to start; a process sees one MIG instance at most. CUDA
/// counts in PCI order only if CUDA_DEVICE_ORDER=PCI_BUS_ID or all GPUs are alike.
[[nodiscard]] VisibleDevices apply_visible_devices(const std::optional<std::string>& setting,
                                                   const std::vector<DeviceInfo>& present);

}  // namespace drover::cuda
