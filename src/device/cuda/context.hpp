// device/cuda/context.hpp: makes the context of a device current for a scope.
#pragma once

#include "device/cuda/device.hpp"

namespace drover::device::cuda {

/// Makes a device's context current for a scope, then restores the previous one, on which other libraries in this
/// thread rely. In the scope the capture mode is relaxed, so that calls do not invalidate graphs being captured: they
/// concern resources of drover, which no graph uses. Throws `Errc::forked` in a forked child.
class CurrentContext {
 public:
  explicit CurrentContext(const CudaDevice& device);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  CUcontext before_ = nullptr;
  int capture_mode_ = kCaptureRelaxed;
  bool is_changed_ = false;
};

/// The same for destructors: never throws; logs failures.
class QuietContext {
 public:
  explicit QuietContext(const CudaDevice& device) noexcept;
  ~QuietContext();
  QuietContext(const QuietContext&) = delete;
  QuietContext& operator=(const QuietContext&) = delete;

 private:
  CUcontext before_ = nullptr;
  int capture_mode_ = kCaptureRelaxed;
};

/// Waits for all work submitted to the device of the current context, by any library. Requires: a CurrentContext or
/// QuietContext in scope.
void await_work() noexcept;

}  // namespace drover::device::cuda
