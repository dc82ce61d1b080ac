// drover/device/driver_report.hpp: the state of NVIDIA's driver as this process finds it, for diagnosis.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drover/device/info.hpp"

namespace drover {

/// A call's result in the foreign API's own terms.
struct ForeignResult {
  int code = 0;      ///< 0 is success
  std::string text;  ///< name and meaning, e.g. "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
};

/// What was found. Nothing here throws: a driver that is missing or broken is a report, not an error.
struct DriverReport {
  std::string cuda_library;                  ///< path or name that was tried
  std::string cuda_library_error;            ///< the loader's words; empty when it loaded
  int cuda_version = 0;                      ///< e.g. 13000 for 13.0; 0 when not loaded
  std::vector<std::string> missing_symbols;  ///< required entry points the driver lacks
  std::optional<ForeignResult> cuda_init;    ///< cuInit's answer; only when asked for
  std::string nvml_library_error;            ///< the loader's words; empty when it loaded
  std::optional<ForeignResult> nvml_init;    ///< NVML's answer; nothing when it did not load
  std::string driver_version;                ///< e.g. "580.159.04"; empty when unknown
  std::vector<DeviceInfo> present;           ///< every GPU NVML shows, before CUDA_VISIBLE_DEVICES
  std::vector<DeviceInfo> visible;           ///< what is left after it, as backend `cuda` numbers them
  std::vector<std::string> unmatched;        ///< entries of CUDA_VISIBLE_DEVICES that name nothing, and those after
};

/// Looks at the driver. With `initialize` it also calls cuInit, which can take seconds or hang on a sick GPU and
/// leaves this process unfit for forking: do that in a process of its own.
[[nodiscard]] DriverReport inspect_driver(bool initialize);

}  // namespace drover
