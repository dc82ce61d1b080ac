// device/cuda/driver.hpp: NVIDIA's driver API, loaded at run time.
#pragma once

#include <string>
#include <vector>

#include "device/cuda/api_types.hpp"
#include "device/cuda/entry.hpp"
#include "device/shared_library.hpp"

namespace drover::device::cuda {

/// The driver's entry points. Loading them initialises nothing.
struct Driver {
#define DROVER_CUDA(name, version, need, parameters) Entry<int parameters> name{#name, AfterFork::refused};
#include "device/cuda/driver.def"
#undef DROVER_CUDA

  std::string path;                  ///< path or name passed to the loader
  std::string error;                 ///< why it could not be loaded; empty if it was
  std::vector<std::string> missing;  ///< required entry points that the driver lacks
  int version = 0;                   ///< 13000 for CUDA 13.0; 0 if not loaded

  [[nodiscard]] bool is_usable() const noexcept { return error.empty() && missing.empty(); }
};

/// Loads libcuda.so.1, or the library that DROVER_LIBCUDA names, once per process; never unloads it.
[[nodiscard]] const Driver& driver();

/// Throws `Errc::driver_missing` or `Errc::driver_mismatch` unless the driver is usable.
void require_driver();

}  // namespace drover::device::cuda
