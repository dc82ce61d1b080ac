#include "device/cuda/device.hpp"

#include <bit>

#include "device/cuda/context.hpp"
#include "device/cuda/event.hpp"
#include "device/cuda/foreign.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/module.hpp"
#include "device/cuda/stream.hpp"
#include "device/foreign.hpp"
#include "device/fork_guard.hpp"
#include "device/own.hpp"
#include "device/timelines.hpp"
#include "drover/base/trace.hpp"

namespace drover::device::cuda {
CudaDevice::CudaDevice(CudaBackend& backend, const DeviceInfo& info, CUdevice ordinal)
    : backend_(backend), info_(info), ordinal_(ordinal) {
  const TraceSpan span("cuda.open");
  check(driver().cuDevicePrimaryCtxRetain(&context_, ordinal_), "cuDevicePrimaryCtxRetain",
        facts("the primary context"));
  try {
    prepare();
  } catch (...) {
    check_quietly(driver().cuDevicePrimaryCtxRelease(ordinal_), "cuDevicePrimaryCtxRelease failed with code");
    throw;
  }
}

void CudaDevice::prepare() {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, kAttributeMemOps64, ordinal_), "cuDeviceGetAttribute",
        facts("64-bit stream memory operations"));
  has_timelines_ = value != 0 && timelines_allowed();
  const CurrentContext context(*this);
  check(driver().cuStreamCreate(&copies_, kStreamNonBlocking), "cuStreamCreate",
        facts("the stream of blocking copies"));
}

CudaDevice::~CudaDevice() = default;

MemoryInfo CudaDevice::memory_info() const { return backend_.memory_info(info_.index); }

std::unique_ptr<DeviceMemory> CudaDevice::allocate(std::size_t bytes) {
  require(bytes > 0, "cannot allocate 0 bytes of device memory");
  const TraceSpan span("device.allocate", bytes);
  return std::make_unique<CudaAllocation>(*this, bytes);
}

std::unique_ptr<DeviceMemory> CudaDevice::map(const Slab& slab) {
  const auto& mine = own<const CudaSlab>(slab);
  require(mine.device() == info_.index, "cannot map a slab on a device other than its own",
          "open the slab's own device and map it there");
  const TraceSpan span("device.map", slab.size());
  return std::make_unique<CudaSlabMapping>(*this, mine);
}

PointerInfo CudaDevice::describe(DevicePtr ptr) const { return describe_pointer(*this, ptr); }

IpcHandle CudaDevice::ipc_handle(DevicePtr base) const {
  require_ipc(describe(base), base);
  const CurrentContext context(*this);
  CUipcMemHandle raw{};
  check(driver().cuIpcGetMemHandle(&raw, base.address), "cuIpcGetMemHandle", facts("an allocation"));
  return std::bit_cast<IpcHandle>(raw);
}

std::unique_ptr<DeviceMemory> CudaDevice::open_ipc(const IpcHandle& handle, std::size_t size) {
  const TraceSpan span("device.open_ipc", size);
  return std::make_unique<CudaIpcMemory>(*this, handle, size);
}

std::unique_ptr<Slab> CudaDevice::retain_slab(DevicePtr ptr) {
  const PointerInfo about = describe(ptr);
  require_retainable(about, ptr);
  const CUmemHandle handle = retain_handle(ptr);
  require(handle != 0, "device memory was unmapped while its slab was being retained");
  return std::make_unique<CudaSlab>(counters(), about.device, handle, about.size);
}

std::unique_ptr<HostRegistration> CudaDevice::register_host(std::span<std::byte> memory) {
  const TraceSpan span("device.register", memory.size());
  return std::make_unique<CudaHostRegistration>(*this, memory);
}

std::unique_ptr<Stream> CudaDevice::create_stream() { return std::make_unique<CudaStream>(*this); }

std::unique_ptr<Stream> CudaDevice::borrow_stream(std::uintptr_t native) {
  auto* const handle = reinterpret_cast<CUstream>(native);  // NOLINT(performance-no-int-to-ptr): a foreign handle
  if (native > kStreamPerThread) {
    const CurrentContext context(*this);
    CUcontext owner = nullptr;
    check(driver().cuStreamGetCtx(handle, &owner), "cuStreamGetCtx", facts("a stream of another library"));
    require(owner == context_, "a stream of another device or context was passed",
            "open the stream's own device; drover and the CUDA runtime use its primary context");
  }
  return std::make_unique<CudaStream>(*this, handle);
}

bool CudaDevice::can_copy_directly(const Device& other) const {
  const auto* const peer = dynamic_cast<const CudaDevice*>(&other);
  if (peer == nullptr || peer == this) return peer == this;
  fork_guard::check();
  int can_access = 0;
  check(driver().cuDeviceCanAccessPeer(&can_access, ordinal_, peer->ordinal_), "cuDeviceCanAccessPeer",
        facts("memory of another GPU"));
  return can_access != 0;
}

std::unique_ptr<StreamEvent> CudaDevice::create_event() { return std::make_unique<CudaEvent>(*this); }

std::unique_ptr<Module> CudaDevice::load_module(std::span<const std::byte> image) {
  const TraceSpan span("device.load_module", image.size());
  return std::make_unique<CudaModule>(*this, image);
}

// Blocking copies use a separate stream: the blocking copies of the API do not always block.
void CudaDevice::upload(DevicePtr to, const void* from, std::size_t bytes) {
  const CurrentContext context(*this);
  const TraceSpan span("device.upload", bytes);
  check(driver().cuMemcpyHtoDAsync(to.address, from, bytes, copies_), "cuMemcpyHtoDAsync", facts("an upload", bytes));
  check(driver().cuStreamSynchronize(copies_), "cuStreamSynchronize", facts("an upload", bytes));
}

void CudaDevice::download(void* to, DevicePtr from, std::size_t bytes) {
  const CurrentContext context(*this);
  const TraceSpan span("device.download", bytes);
  check(driver().cuMemcpyDtoHAsync(to, from.address, bytes, copies_), "cuMemcpyDtoHAsync",
        facts("a download", bytes));
  check(driver().cuStreamSynchronize(copies_), "cuStreamSynchronize", facts("a download", bytes));
}

void CudaDevice::copy(DevicePtr to, DevicePtr from, std::size_t bytes) {
  const CurrentContext context(*this);
  const TraceSpan span("device.copy", bytes);
  check(driver().cuMemcpyAsync(to.address, from.address, bytes, copies_), "cuMemcpyAsync", facts("a copy", bytes));
  check(driver().cuStreamSynchronize(copies_), "cuStreamSynchronize", facts("a copy", bytes));
}

}  // namespace drover::device::cuda
