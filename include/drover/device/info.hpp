// drover/device/info.hpp: what is known of a device without using it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "drover/device/uuid.hpp"

namespace drover {

/// Which implementation drives a device.
enum class BackendKind {
  host,  ///< emulated GPUs: memory and threads of this machine
  cuda,  ///< NVIDIA GPUs through the driver API
};

/// Who may have a context on a GPU.
enum class ComputeMode {
  shared,             ///< any number of processes
  exclusive_process,  ///< one process at a time
  prohibited,         ///< nobody
  unknown,            ///< the driver does not say
};

/// What is known of a device without creating a context on it.
struct DeviceInfo {
  BackendKind backend{};                           ///< who drives it
  int index = 0;                                   ///< its number in this process, after CUDA_VISIBLE_DEVICES
  Uuid uuid;                                       ///< its name between processes
  std::string name;                                ///< e.g. "NVIDIA H200"
  std::uint64_t memory_total = 0;                  ///< bytes
  std::string pci;                                 ///< "0000:1b:00.0"; empty for an emulated device
  std::optional<int> numa_node;                    ///< memory node nearest to it, where the system says
  ComputeMode compute_mode = ComputeMode::shared;  ///< who may use it
  std::optional<bool> mig_enabled;                 ///< whether it is partitioned; nothing if it cannot be
  bool is_mig_instance = false;                    ///< whether this is a partition of a GPU
  bool mps_running = false;                        ///< whether an MPS control daemon serves this process
};

/// Memory of a device, over all processes that use it.
struct MemoryInfo {
  std::uint64_t total = 0;  ///< bytes the device has
  std::uint64_t free = 0;   ///< bytes nobody has taken
  /// Bytes taken by anyone.
  [[nodiscard]] std::uint64_t used() const noexcept { return total - free; }
};

/// "host" or "cuda".
[[nodiscard]] std::string_view to_string(BackendKind kind) noexcept;
/// "shared", "exclusive-process", "prohibited" or "unknown".
[[nodiscard]] std::string_view to_string(ComputeMode mode) noexcept;
/// The device's UUID as CUDA_VISIBLE_DEVICES takes it: "GPU-...", or "MIG-..." for a partition.
[[nodiscard]] std::string uuid_text(const DeviceInfo& info);
/// The device's short name in this process: "cuda:0", "host:1".
[[nodiscard]] std::string device_id(const DeviceInfo& info);

}  // namespace drover
