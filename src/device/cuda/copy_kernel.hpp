// device/cuda/copy_kernel.hpp: many copies within a GPU by one launch.
#pragma once

#include <span>

#include "device/cuda/api_types.hpp"
#include "drover/base/mutex.hpp"
#include "drover/device/stream.hpp"

namespace drover::device::cuda {

class CudaDevice;

/// A kernel that copies up to 160 ranges of bytes. To submit it takes 5 us, as long as one copy by the driver. The
/// first use compiles it, in up to 0.1 s unless the driver finds it in its cache. It lives as long as the context.
/// Safe for all threads.
class CopyKernel {
 public:
  /// `device` must outlive this.
  explicit CopyKernel(const CudaDevice& device) noexcept : device_(device) {}

  /// Submits the copies to a stream of the device; false, and does nothing, if the driver cannot load the kernel.
  /// Requires: the device's context is current.
  [[nodiscard]] bool submit(CUstream stream, std::span<const DeviceCopy> copies) DROVER_EXCLUDES(mutex_);

 private:
  [[nodiscard]] CUfunction function() DROVER_EXCLUDES(mutex_);

  const CudaDevice& device_;
  Mutex mutex_;
  bool is_loaded_ DROVER_GUARDED_BY(mutex_) = false;         // or is known to fail
  CUfunction function_ DROVER_GUARDED_BY(mutex_) = nullptr;  // null if it cannot be loaded
};

}  // namespace drover::device::cuda
