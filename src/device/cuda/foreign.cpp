#include "device/cuda/foreign.hpp"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "device/cuda/context.hpp"
#include "device/foreign.hpp"
#include "drover/base/bytes.hpp"

namespace drover::device::cuda {
namespace {

// Attributes have one, four or eight bytes; eight zeroed ones serve for all.
static_assert(std::endian::native == std::endian::little);

// Zero if the driver does not report it.
std::uint64_t attribute(int which, DevicePtr ptr) {
  std::uint64_t value = 0;
  return driver().cuPointerGetAttribute(&value, which, ptr.address) == kSuccess ? value : 0;
}

bool is_device_memory(const CudaDevice& device, DevicePtr ptr) {
  std::uint64_t type = 0;
  const CUresult result = driver().cuPointerGetAttribute(&type, kPointerMemoryType, ptr.address);
  if (result == kInvalidValue) return false;  // memory unknown to CUDA
  check(result, "cuPointerGetAttribute", device.facts("an address"));
  return type == kMemoryTypeDevice || attribute(kPointerIsManaged, ptr) != 0;
}

void describe_virtual_memory(PointerInfo& info, DevicePtr ptr) {
  const CUmemHandle handle = retain_handle(ptr);
  if (handle == 0) return;
  info.is_vmm = true;
  info.can_retain = (attribute(kPointerAllowedHandles, ptr) & kHandlePosixFd) != 0;
  // The plain range is the reservation, which may hold many pieces.
  if (const std::uint64_t size = attribute(kPointerMappingSize, ptr); size != 0) {
    info.base = {attribute(kPointerMappingBase, ptr)};
    info.size = size;
  }
  check_quietly(driver().cuMemRelease(handle), "cuMemRelease failed with code");
}

Error cannot_open(const CudaDevice& device, CUresult result, std::size_t bytes) {
  switch (result) {
    case kInvalidContext: return own_allocation();
    case kInvalidValue:
    case kInvalidHandle:
    case kMapFailed: return no_such_allocation(describe(result));
    default: return cuda_error(result, "cuIpcOpenMemHandle", device.facts("memory of another process", bytes));
  }
}

DevicePtr open(const CudaDevice& device, const IpcHandle& handle, std::size_t bytes) {
  const CurrentContext context(device);
  CUipcMemHandle raw{};
  static_assert(sizeof(raw) == sizeof(handle));
  std::memcpy(&raw, handle.data(), handle.size());
  CUdeviceptr address = 0;
  const CUresult result = driver().cuIpcOpenMemHandle(&address, raw, kIpcLazyPeerAccess);
  if (result != kSuccess) throw cannot_open(device, result, bytes);
  const std::uint64_t present = attribute(kPointerRangeSize, {address});
  if (bytes != 0 && bytes <= present) return {address};
  check_quietly(driver().cuIpcCloseMemHandle(address), "cuIpcCloseMemHandle failed with code");
  throw no_such_allocation(fmt::format("it was announced with {} bytes and has {}", bytes, present));
}

}  // namespace

CUmemHandle retain_handle(DevicePtr ptr) {
  CUmemHandle handle = 0;
  void* const pointer =
      reinterpret_cast<void*>(ptr.address);  // NOLINT(performance-no-int-to-ptr): required by the API
  return driver().cuMemRetainAllocationHandle(&handle, pointer) == kSuccess ? handle : 0;
}

PointerInfo describe_pointer(const CudaDevice& device, DevicePtr ptr) {
  const CurrentContext context(device);
  PointerInfo info;
  if (!is_device_memory(device, ptr)) return info;
  info.is_device = true;
  info.device = device.backend().index_of(static_cast<CUdevice>(attribute(kPointerDeviceOrdinal, ptr)));
  info.base = {attribute(kPointerRangeStart, ptr)};
  info.size = attribute(kPointerRangeSize, ptr);
  info.buffer_id = attribute(kPointerBufferId, ptr);
  info.can_legacy_ipc = attribute(kPointerIsLegacyIpcCapable, ptr) != 0;
  info.is_pool = attribute(kPointerPool, ptr) != 0;
  info.is_managed = attribute(kPointerIsManaged, ptr) != 0;
  if (!info.can_legacy_ipc && !info.is_pool && !info.is_managed) describe_virtual_memory(info, ptr);
  return info;
}

CudaIpcMemory::CudaIpcMemory(CudaDevice& device, const IpcHandle& handle, std::size_t bytes)
    : DeviceMemory(open(device, handle, bytes), bytes), device_(device), live_(device.counters().memory) {}

CudaIpcMemory::~CudaIpcMemory() {
  const QuietContext context(device_);
  await_work();
  check_quietly(driver().cuIpcCloseMemHandle(ptr().address), "cuIpcCloseMemHandle failed with code");
}

}  // namespace drover::device::cuda
