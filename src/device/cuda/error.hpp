// device/cuda/error.hpp: the one translation of the driver's errors.
#pragma once

#include <cstddef>
#include <source_location>
#include <string>

#include "device/cuda/driver.hpp"
#include "drover/base/error.hpp"

namespace drover::device::cuda {

/// The object of a call, for the error message; formatted only if the call fails.
struct CallFacts {
  int device = -1;        ///< index, or -1 if the call concerns no single device
  const char* what = "";  ///< e.g. "a slab"
  std::size_t bytes = 0;  ///< its size, or 0 if it has none
};

/// "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected".
[[nodiscard]] std::string describe(CUresult result);

/// The error for `result` of `call`. Throws `Errc::forked` for result 3 (not initialised): the driver is initialised
/// before any other call, so it can only mean a fork.
[[nodiscard]] Error cuda_error(CUresult result, const char* call, const CallFacts& facts,
                               std::source_location where = std::source_location::current());

/// Throws unless `result` is success: check(driver().cuInit(0), "cuInit", {...}).
inline void check(CUresult result, const char* call, const CallFacts& facts,
                  std::source_location where = std::source_location::current()) {
  if (result != kSuccess) throw cuda_error(result, call, facts, where);
}

/// For destructors: logs `result` unless it is success, the driver is shutting down, or this is a forked child.
void check_quietly(CUresult result, const char* call) noexcept;

}  // namespace drover::device::cuda
