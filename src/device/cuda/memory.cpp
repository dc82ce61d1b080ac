#include "device/cuda/memory.hpp"

#include <fcntl.h>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "device/cuda/context.hpp"
#include "device/cuda/error.hpp"
#include "device/fork_guard.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"

namespace drover::device::cuda {
namespace {

DevicePtr allocate(const CudaDevice& device, std::size_t bytes) {
  const CurrentContext context(device);
  CUdeviceptr address = 0;
  check(driver().cuMemAlloc(&address, bytes), "cuMemAlloc", device.facts("device memory", bytes));
  return {address};
}

// A range of addresses that becomes a mapped slab, or is freed if a step fails.
class AddressRange {
 public:
  AddressRange(const CudaDevice& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    check(driver().cuMemAddressReserve(&begin_, bytes_, 0, 0, 0), "cuMemAddressReserve",
          device_.facts("an address range", bytes_));
  }
  ~AddressRange() {
    if (begin_ == 0) return;
    if (is_mapped_) check_quietly(driver().cuMemUnmap(begin_, bytes_), "cuMemUnmap failed with code");
    check_quietly(driver().cuMemAddressFree(begin_, bytes_), "cuMemAddressFree failed with code");
  }
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  void map(const CudaSlab& slab) {
    const CUresult result = driver().cuMemMap(begin_, bytes_, 0, slab.handle(), 0);
    if (result == kInvalidValue || result == kNotSupported) {
      throw Error(Errc::corrupt,
                  fmt::format("a slab announced with {} cannot be mapped on cuda:{}: {}", format_bytes(bytes_),
                              device_.info().index, describe(result)),
                  "send the slab's own size() along with its descriptor");
    }
    check(result, "cuMemMap", device_.facts("a slab", bytes_));
    is_mapped_ = true;
    check(give_access(device_), "cuMemSetAccess", device_.facts("a slab", bytes_));
    for (const CudaDevice* const peer : device_.backend().peers_of(device_)) {
      // On failure, copies between the two go through host memory, which is slower but not an error.
      check_quietly(give_access(*peer), "cuMemSetAccess for another device failed with code");
    }
  }

  [[nodiscard]] CUdeviceptr release() noexcept { return std::exchange(begin_, 0); }

 private:
  [[nodiscard]] CUresult give_access(const CudaDevice& to) const {
    const CUmemAccessDesc access{.location = {.type = kLocationDevice, .id = to.ordinal()},
                                 .flags = kAccessReadWrite};
    return driver().cuMemSetAccess(begin_, bytes_, &access, 1);
  }

  const CudaDevice& device_;
  std::size_t bytes_;
  CUdeviceptr begin_ = 0;
  bool is_mapped_ = false;
};

DevicePtr map(const CudaDevice& device, const CudaSlab& slab) {
  const CurrentContext context(device);
  AddressRange range(device, slab.size());
  range.map(slab);
  return {range.release()};
}

}  // namespace

CudaSlab::~CudaSlab() { check_quietly(driver().cuMemRelease(handle_), "cuMemRelease failed with code"); }

Fd CudaSlab::export_fd() const {
  fork_guard::check();
  int number = -1;
  check(driver().cuMemExportToShareableHandle(&number, handle_, kHandlePosixFd, 0), "cuMemExportToShareableHandle",
        {device(), "a slab", size()});
  Fd exported(number);
  const auto close_on_exec = [](int fd) { return ::fcntl(fd, F_SETFD, FD_CLOEXEC); };
  if (sys::call("fcntl", close_on_exec, number) != 0) throw_errno("fcntl(F_SETFD)", "an exported slab");
  return exported;
}

CudaAllocation::CudaAllocation(CudaDevice& device, std::size_t bytes)
    : DeviceMemory(allocate(device, bytes), bytes), device_(device), live_(device.counters().memory) {}

CudaAllocation::~CudaAllocation() {
  const QuietContext context(device_);
  check_quietly(driver().cuMemFree(ptr().address), "cuMemFree failed with code");
}

CudaSlabMapping::CudaSlabMapping(CudaDevice& device, const CudaSlab& slab)
    : DeviceMemory(map(device, slab), slab.size()), device_(device), live_(device.counters().memory) {}

CudaSlabMapping::~CudaSlabMapping() {
  const QuietContext context(device_);
  // Unmapping does not wait by itself: work in flight would fault.
  await_work();
  check_quietly(driver().cuMemUnmap(ptr().address, size()), "cuMemUnmap failed with code");
  check_quietly(driver().cuMemAddressFree(ptr().address, size()), "cuMemAddressFree failed with code");
}

CudaHostRegistration::CudaHostRegistration(CudaDevice& device, std::span<std::byte> memory)
    : device_(device), live_(device.counters().registrations), begin_(memory.data()) {
  require(!memory.empty(), "host memory of 0 bytes cannot be registered");
  const CurrentContext context(device_);
  check(driver().cuMemHostRegister(begin_, memory.size(), kHostRegisterPortable | kHostRegisterDeviceMap),
        "cuMemHostRegister", device_.facts("host memory", memory.size()));
}

CudaHostRegistration::~CudaHostRegistration() {
  const QuietContext context(device_);
  await_work();
  check_quietly(driver().cuMemHostUnregister(begin_), "cuMemHostUnregister failed with code");
}

}  // namespace drover::device::cuda
