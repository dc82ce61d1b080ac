// drover/device/info.hpp: properties of devices and of the driver, found without using a device.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Sixteen bytes that name a device in every process. Messages carry UUIDs rather than indices, because each process
/// may see a different subset of the devices.
struct Uuid {
  std::array<std::uint8_t, 16> bytes{};  ///< in the order of the text form

  /// Ordered by bytes.
  auto operator<=>(const Uuid&) const = default;
};

/// In the format of NVIDIA's tools: "GPU-" and 8-4-4-4-12 hexadecimal digits.
[[nodiscard]] std::string to_string(const Uuid& uuid);

/// Parses that format, with or without the prefix "GPU-" or "MIG-"; nullopt if the text is anything else.
[[nodiscard]] std::optional<Uuid> parse_uuid(std::string_view text);

/// The implementation that drives a device.
enum class BackendKind {
  host,  ///< emulated GPUs: memory and threads of this machine
  cuda,  ///< NVIDIA GPUs through the driver API
};

/// Which processes may create a context on a GPU.
enum class ComputeMode {
  shared,             ///< any number of processes
  exclusive_process,  ///< one process at a time
  prohibited,         ///< none
  unknown,            ///< not reported by the driver
};

/// Properties of a device that need no context on it.
struct DeviceInfo {
  BackendKind backend{};                           ///< implementation that drives it
  int index = 0;                                   ///< its number in this process, after CUDA_VISIBLE_DEVICES
  Uuid uuid;                                       ///< its name in all processes
  std::string name;                                ///< e.g. "NVIDIA H200"
  std::uint64_t memory_total = 0;                  ///< bytes
  std::string pci;                                 ///< "0000:1b:00.0"; empty for an emulated device
  std::optional<int> numa_node;                    ///< nearest memory node; nullopt if unknown
  ComputeMode compute_mode = ComputeMode::shared;  ///< which processes may use it
  std::optional<bool> mig_enabled;                 ///< whether it is partitioned; nullopt if it cannot be
  bool is_mig_instance = false;                    ///< whether this is a partition of a GPU
  bool mps_running = false;                        ///< whether an MPS control daemon serves this process
};

/// Memory of a device, over all processes that use it.
struct MemoryInfo {
  std::uint64_t total = 0;  ///< bytes the device has
  std::uint64_t free = 0;   ///< bytes not in use
  /// Bytes in use by any process.
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

/// The result of a call to a driver library, in that library's own terms.
struct ForeignResult {
  int code = 0;      ///< 0 is success
  std::string text;  ///< name and meaning, e.g. "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
};

/// State of NVIDIA's driver as this process finds it. A missing or broken driver is a finding here, not an exception.
struct DriverReport {
  std::string cuda_library;                  ///< path or name passed to the loader
  std::string cuda_library_error;            ///< the loader's message; empty if it loaded
  int cuda_version = 0;                      ///< e.g. 13000 for 13.0; 0 if not loaded
  std::vector<std::string> missing_symbols;  ///< required entry points the driver lacks
  std::optional<ForeignResult> cuda_init;    ///< result of cuInit, if it was called
  std::string nvml_library_error;            ///< the loader's message; empty if it loaded
  std::optional<ForeignResult> nvml_init;    ///< result of nvmlInit; nullopt if NVML did not load
  std::string driver_version;                ///< e.g. "580.159.04"; empty if unknown
  std::vector<DeviceInfo> present;           ///< every GPU that NVML lists, before CUDA_VISIBLE_DEVICES
  std::vector<DeviceInfo> visible;           ///< those that it leaves visible, as backend `cuda` numbers them
  std::vector<std::string> unmatched;        ///< the first invalid entry of CUDA_VISIBLE_DEVICES, and all after it
};

/// Inspects the driver. With `initialize` it also calls cuInit, which can take seconds, can hang on a faulty GPU, and
/// makes this process unsafe to fork: do that in a separate process.
[[nodiscard]] DriverReport inspect_driver(bool initialize);

}  // namespace drover
