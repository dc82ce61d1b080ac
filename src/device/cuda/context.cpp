#include "device/cuda/context.hpp"

#include "device/fork_guard.hpp"
#include "drover/device/stream.hpp"

namespace drover::device::cuda {
namespace {

// Swaps `capture_mode` with the mode of this thread.
void exchange(int& capture_mode) noexcept {
  check_quietly(driver().cuThreadExchangeStreamCaptureMode(&capture_mode),
                "cuThreadExchangeStreamCaptureMode failed with code");
}

}  // namespace

CurrentContext::CurrentContext(const CudaDevice& device) {
  fork_guard::check();
  check(driver().cuCtxGetCurrent(&before_), "cuCtxGetCurrent", device.facts("the context"));
  if (before_ != device.context()) {
    check(driver().cuCtxSetCurrent(device.context()), "cuCtxSetCurrent", device.facts("the context"));
    is_changed_ = true;
  }
  exchange(capture_mode_);
}

CurrentContext::~CurrentContext() {
  exchange(capture_mode_);
  if (is_changed_) check_quietly(driver().cuCtxSetCurrent(before_), "cuCtxSetCurrent failed with code");
}

QuietContext::QuietContext(const CudaDevice& device) noexcept {
  check_quietly(driver().cuCtxGetCurrent(&before_), "cuCtxGetCurrent failed with code");
  check_quietly(driver().cuCtxSetCurrent(device.context()), "cuCtxSetCurrent failed with code");
  exchange(capture_mode_);
}

QuietContext::~QuietContext() {
  exchange(capture_mode_);
  check_quietly(driver().cuCtxSetCurrent(before_), "cuCtxSetCurrent failed with code");
}

// cuCtxSynchronize invalidates every capture in the context, whatever the mode. Freeing an allocation waits too and
// invalidates none, but until the device is idle it keeps other threads from submitting work, on which the work in
// flight may depend. So it is used only while a capture may be in progress.
void await_work() noexcept {
  CUdeviceptr any = 0;
  if (CaptureNotice::exists() && driver().cuMemAlloc(&any, 1) == kSuccess) {
    check_quietly(driver().cuMemFree(any), "cuMemFree failed with code");
  } else {
    check_quietly(driver().cuCtxSynchronize(), "cuCtxSynchronize failed with code");
  }
}

}  // namespace drover::device::cuda
