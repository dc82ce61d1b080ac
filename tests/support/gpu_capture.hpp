// tests/support/gpu_capture.hpp: graphs that a program captures while it uses drover.
#pragma once

#include "drover/device/stream.hpp"

namespace drover::test {

/// A capture of a GPU's stream by this thread, in the mode of CUDA that is strictest and the default of torch:
/// whatever breaks into it, on any thread, makes the whole capture fail. drover is told of it.
class GpuCapture {
 public:
  /// Begins; adds a failure to the test if that is impossible.
  explicit GpuCapture(const Stream& stream);
  /// Ends it and forgets the graph. Whether nothing broke into it.
  [[nodiscard]] bool end() const;

 private:
  CaptureNotice notice_;
  void* stream_;
};

}  // namespace drover::test
