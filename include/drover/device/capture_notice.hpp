// drover/device/capture_notice.hpp: how a program that captures graphs of GPUs says so.
#pragma once

namespace drover {

/// As long as one lives, in any thread, drover waits for a GPU in a way that breaks into no capture. To unmap memory,
/// or to close what was opened by a handle, is to wait for all that the GPU was given, and CUDA makes every capture
/// in the process fail that goes on meanwhile; the way that does not keeps other threads from giving the GPU work, so
/// it is taken only then. In Python `drover.torch` does this for torch. Cheap; safe for all threads.
class CaptureNotice {
 public:
  CaptureNotice() noexcept;
  ~CaptureNotice();
  CaptureNotice(const CaptureNotice&) = delete;
  CaptureNotice& operator=(const CaptureNotice&) = delete;

  /// Whether there are any.
  [[nodiscard]] static bool exists() noexcept;
};

}  // namespace drover
