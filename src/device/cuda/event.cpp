#include "device/cuda/event.hpp"

#include "device/cuda/context.hpp"
#include "device/cuda/polling.hpp"
#include "device/own.hpp"

namespace drover::device::cuda {

CudaEvent::CudaEvent(CudaDevice& device) : device_(device), live_(device.counters().events) {
  const CurrentContext context(device_);
  check(driver().cuEventCreate(&handle_, 0), "cuEventCreate", device_.facts("an event"));
}

CudaEvent::~CudaEvent() {
  const QuietContext context(device_);
  check_quietly(driver().cuEventDestroy(handle_), "cuEventDestroy failed with code");
}

bool CudaEvent::has_happened() const {
  const CurrentContext context(device_);
  return is_done(driver().cuEventQuery(handle_), "cuEventQuery", device_.facts("an event"));
}

WaitResult CudaEvent::synchronize(Deadline deadline) const {
  if (!deadline.is_never()) return poll_until("event.synchronize", [this] { return has_happened(); }, deadline);
  const CurrentContext context(device_);
  check(driver().cuEventSynchronize(handle_), "cuEventSynchronize", device_.facts("an event"));
  return WaitResult::done;
}

double CudaEvent::milliseconds_since(const StreamEvent& earlier) const {
  const CurrentContext context(device_);
  float milliseconds = 0;
  const CUresult result = driver().cuEventElapsedTime(&milliseconds, own<const CudaEvent>(earlier).handle_, handle_);
  require(result != kNotReady && result != kInvalidHandle,
          "the time of an event was requested before it has happened", "record the event and synchronize it first");
  check(result, "cuEventElapsedTime", device_.facts("two events"));
  return milliseconds;
}

}  // namespace drover::device::cuda
