// tests/support/gpu_capture.hpp: captures a CUDA graph during a test.
#pragma once

#include "drover/device/stream.hpp"

namespace drover::test {

/// A capture of a GPU's stream by this thread, in CUDA's strictest mode, which is the default of torch: a forbidden
/// call on any thread invalidates the whole capture. Holds a CaptureNotice.
class GpuCapture {
 public:
  /// Begins the capture; fails the test if that is impossible.
  explicit GpuCapture(const Stream& stream);
  /// Ends the capture and discards the graph. Returns whether the capture was valid.
  [[nodiscard]] bool end() const;

 private:
  CaptureNotice notice_;
  void* stream_;
};

}  // namespace drover::test
