#include "device/cuda/stream.hpp"

#include <vector>

#include <fmt/format.h>

#include "device/cuda/context.hpp"
#include "device/cuda/event.hpp"
#include "device/cuda/module.hpp"
#include "device/cuda/polling.hpp"
#include "device/own.hpp"
#include "device/timelines.hpp"

namespace drover::device::cuda {
namespace {

constexpr std::size_t kLargeCopy = std::size_t{32} << 20U;
constexpr const char* kAfterCapture = "wait for it before the capture starts, or after it has ended";

}  // namespace

CudaStream::CudaStream(CudaDevice& device) : device_(device), live_(device.counters().streams) {
  const CurrentContext context(device_);
  check(driver().cuStreamCreate(&handle_, kStreamNonBlocking), "cuStreamCreate", device_.facts("a stream"));
}

CudaStream::CudaStream(CudaDevice& device, CUstream borrowed) noexcept
    : device_(device), live_(device.counters().streams), handle_(borrowed), is_borrowed_(true) {}

CudaStream::~CudaStream() {
  if (is_borrowed_) return;
  const QuietContext context(device_);
  check_quietly(driver().cuStreamDestroy(handle_), "cuStreamDestroy failed with code");
}

void CudaStream::upload(DevicePtr to, const void* from, std::size_t bytes) {
  const CurrentContext context(device_);
  check(driver().cuMemcpyHtoDAsync(to.address, from, bytes, handle_), "cuMemcpyHtoDAsync",
        device_.facts("an upload", bytes));
}

void CudaStream::download(void* to, DevicePtr from, std::size_t bytes) {
  const CurrentContext context(device_);
  check(driver().cuMemcpyDtoHAsync(to, from.address, bytes, handle_), "cuMemcpyDtoHAsync",
        device_.facts("a download", bytes));
}

void CudaStream::copy(DevicePtr to, DevicePtr from, std::size_t bytes) {
  const CurrentContext context(device_);
  check(driver().cuMemcpyAsync(to.address, from.address, bytes, handle_), "cuMemcpyAsync",
        device_.facts("a copy", bytes));
}

// One launch costs as much as one copy. Large copies are as fast by the driver, which leaves the multiprocessors
// alone.
void CudaStream::copy_all(std::span<const DeviceCopy> copies) {
  std::vector<DeviceCopy> small;
  for (const DeviceCopy& each : copies) {
    if (each.bytes >= kLargeCopy) {
      copy(each.to, each.from, each.bytes);
    } else if (each.bytes > 0) {
      small.push_back(each);
    }
  }
  const CurrentContext context(device_);
  if (small.size() > 1 && device_.copy_kernel().submit(handle_, small)) return;
  Stream::copy_all(small);
}

void CudaStream::fill(DevicePtr to, std::uint8_t value, std::size_t bytes) {
  if (bytes == 0) return;
  const CurrentContext context(device_);
  check(driver().cuMemsetD8Async(to.address, value, bytes, handle_), "cuMemsetD8Async",
        device_.facts("a fill", bytes));
}

void CudaStream::launch(const Kernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) {
  const auto& mine = own<const CudaKernel>(kernel);
  mine.check_arguments(arguments);
  std::vector<void*> values;
  values.reserve(arguments.size());
  for (const auto& argument : arguments) {
    require(argument.data != nullptr, "a kernel argument has no value");
  }
  for (const auto& argument : arguments) values.push_back(const_cast<void*>(argument.data));  // NOLINT: only read
  const auto& [grid, block, shared_bytes] = shape;
  const CurrentContext context(device_);
  check(driver().cuLaunchKernel(mine.handle(), grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes,
                                handle_, values.data(), nullptr),
        "cuLaunchKernel", device_.facts(mine.name().c_str()));
}

void CudaStream::record(StreamEvent& event) {
  const CurrentContext context(device_);
  check(driver().cuEventRecord(own<CudaEvent>(event).handle(), handle_), "cuEventRecord", device_.facts("an event"));
}

void CudaStream::wait(const StreamEvent& event) {
  const CurrentContext context(device_);
  check(driver().cuStreamWaitEvent(handle_, own<const CudaEvent>(event).handle(), 0), "cuStreamWaitEvent",
        device_.facts("an event"));
}

CUdeviceptr CudaStream::address_of(TimelineWord& word) const {
  if (!device_.has_timelines()) {
    throw Error(Errc::unsupported,
                fmt::format("cuda:{} has no 64-bit stream memory operations", device_.info().index),
                kWithoutTimelines);
  }
  CUdeviceptr address = 0;
  const CUresult result = driver().cuMemHostGetDevicePointer(&address, &word, 0);
  require(result != kInvalidValue, "a timeline word is not in registered memory",
          "call Device::register_host on the memory that holds it first");
  check(result, "cuMemHostGetDevicePointer", device_.facts("a timeline word"));
  return address;
}

void CudaStream::signal(TimelineWord& word, std::uint64_t value) {
  const CurrentContext context(device_);
  check(driver().cuStreamWriteValue64(handle_, address_of(word), value, kWriteDefault), "cuStreamWriteValue64",
        device_.facts("a timeline word"));
}

void CudaStream::wait(TimelineWord& word, std::uint64_t value) {
  const CurrentContext context(device_);
  check(driver().cuStreamWaitValue64(handle_, address_of(word), value, kWaitGeq), "cuStreamWaitValue64",
        device_.facts("a timeline word"));
}

bool CudaStream::is_capturing() const {
  const CurrentContext context(device_);
  int status = kCaptureNone;
  const CUresult result = driver().cuStreamIsCapturing(handle_, &status);
  // The default stream, while a stream that waits for it is capturing.
  if (result == kCaptureImplicit) return true;
  check(result, "cuStreamIsCapturing", device_.facts("a stream"));
  return status != kCaptureNone;
}

// Querying a capturing stream invalidates the capture. Streams that drover created never capture.
bool CudaStream::is_idle() const {
  if (is_borrowed_ && is_capturing()) return false;
  const CurrentContext context(device_);
  return is_done(driver().cuStreamQuery(handle_), "cuStreamQuery", device_.facts("a stream"));
}

WaitResult CudaStream::synchronize(Deadline deadline) const {
  if (is_borrowed_) require(!is_capturing(), "cannot wait for a stream that is capturing a graph", kAfterCapture);
  if (!deadline.is_never()) return poll_until("stream.synchronize", [this] { return is_idle(); }, deadline);
  const CurrentContext context(device_);
  check(driver().cuStreamSynchronize(handle_), "cuStreamSynchronize", device_.facts("a stream"));
  return WaitResult::done;
}

}  // namespace drover::device::cuda
