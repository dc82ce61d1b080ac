#include "device/cuda/backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "device/cuda/device.hpp"
#include "device/cuda/error.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/visible_devices.hpp"
#include "device/fork_guard.hpp"
#include "drover/base/trace.hpp"

namespace drover::device::cuda {
namespace {

std::optional<std::string> visible_setting() {
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

std::vector<DeviceInfo> infos_of(const std::vector<NvmlGpu>& gpus) {
  std::vector<DeviceInfo> infos;
  infos.reserve(gpus.size());
  for (const auto& gpu : gpus) infos.push_back(gpu.info);
  return infos;
}

// The visible GPUs, in CUDA's order and with CUDA's indices.
std::vector<NvmlGpu> visible_gpus() {
  const auto present = nvml().gpus();
  std::vector<NvmlGpu> visible;
  for (const auto place : apply_visible_devices(visible_setting(), infos_of(present)).order) {
    auto gpu = present[place];
    gpu.info.index = static_cast<int>(visible.size());
    visible.push_back(std::move(gpu));
  }
  return visible;
}

// More than the device has in total; if NVML does not report that, more than any device has.
bool is_beyond(const DeviceInfo& info, std::size_t bytes) {
  constexpr std::uint64_t kMoreThanAny = std::uint64_t{1} << 50;
  return bytes > (info.memory_total == 0 ? kMoreThanAny : info.memory_total);
}

void require_nvml() {
  const Nvml& library = nvml();
  if (library.is_usable()) return;
  constexpr int kVersionMismatch = 18;
  const bool is_mismatch = library.init && library.init->code == kVersionMismatch;
  throw Error(is_mismatch ? Errc::driver_mismatch : Errc::driver_missing,
              library.init ? fmt::format("NVML could not be initialised: {}", library.init->text)
                           : fmt::format("NVML could not be loaded: {}", library.error),
              "run `drover doctor`; emulated devices work with DROVER_BACKEND=host");
}

}  // namespace

CUmemAllocationProp slab_properties(CUdevice ordinal) {
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  properties.requested_handle_types = kHandlePosixFd;
  properties.location = {.type = kLocationDevice, .id = ordinal};
  int is_rdma_capable = 0;
  static_cast<void>(driver().cuDeviceGetAttribute(&is_rdma_capable, kAttributeRdmaVmm, ordinal));
  properties.flags.gpu_direct_rdma_capable = is_rdma_capable != 0 ? 1 : 0;
  return properties;
}

CudaBackend::CudaBackend() {
  require_driver();
  require_nvml();
  gpus_ = visible_gpus();
  infos_ = infos_of(gpus_);
  if (infos_.empty()) {
    const auto setting = visible_setting();
    throw Error(
        Errc::not_found,
        setting ? fmt::format("no GPU is visible with CUDA_VISIBLE_DEVICES={}", *setting) : "this machine has no GPU",
        setting ? "unset CUDA_VISIBLE_DEVICES or name GPUs that nvidia-smi -L shows"
                : "use emulated devices with DROVER_BACKEND=host");
  }
  opened_ = std::vector<OpenedDevice>(infos_.size());
}

CudaBackend::~CudaBackend() = default;

const DeviceInfo& CudaBackend::info(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= infos_.size()) {
    throw Error(
        Errc::not_found,
        fmt::format("there is no device cuda:{}; this process sees cuda:0 to cuda:{}", device, infos_.size() - 1),
        "use one of those, or make more GPUs visible with CUDA_VISIBLE_DEVICES");
  }
  return infos_[static_cast<std::size_t>(device)];
}

// Devices are matched by UUID: CUDA's own order may differ from NVML's.
void CudaBackend::initialize() const {
  const TraceSpan span("cuda.init");
  check(driver().cuInit(0), "cuInit", {});
  fork_guard::arm();
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount", {});
  std::vector<CUdevice> ordinals(infos_.size(), -1);
  for (int index = 0; index < count; ++index) {
    CUdevice ordinal = -1;
    check(driver().cuDeviceGet(&ordinal, index), "cuDeviceGet", {.device = index});
    CUuuid raw{};
    check(driver().cuDeviceGetUuid(&raw, ordinal), "cuDeviceGetUuid", {.device = index});
    Uuid uuid;
    std::memcpy(uuid.bytes.data(), raw.bytes, sizeof(raw.bytes));
    const auto found = std::ranges::find(infos_, uuid, &DeviceInfo::uuid);
    if (found != infos_.end()) ordinals[static_cast<std::size_t>(found - infos_.begin())] = ordinal;
  }
  ordinals_ = std::move(ordinals);
}

CUdevice CudaBackend::ordinal(int device) const {
  fork_guard::check();
  const DeviceInfo& about = info(device);
  std::call_once(initialized_, [this] { initialize(); });
  const CUdevice found = ordinals_[static_cast<std::size_t>(device)];
  if (found < 0) {
    throw Error(
        Errc::not_found,
        fmt::format("CUDA does not show {} ({}), although NVML does", device_id(about), to_string(about.uuid)),
        "set CUDA_VISIBLE_DEVICES before the program starts, not within it; where GPUs differ also set "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID; run `drover doctor`");
  }
  return found;
}

MemoryInfo CudaBackend::memory_info(int device) const {
  static_cast<void>(info(device));
  return nvml().memory_info(gpus_[static_cast<std::size_t>(device)]);
}

Device& CudaBackend::open(int device) {
  const CUdevice number = ordinal(device);
  OpenedDevice& opened = opened_[static_cast<std::size_t>(device)];
  std::call_once(opened.once, [&] {
    opened.device = std::make_unique<CudaDevice>(*this, info(device), number);
    opened.ready.store(opened.device.get(), std::memory_order_release);
  });
  return *opened.device;
}

int CudaBackend::index_of(CUdevice ordinal) const {
  const auto found = std::ranges::find(ordinals_, ordinal);
  return found == ordinals_.end() ? -1 : static_cast<int>(found - ordinals_.begin());
}

std::vector<const CudaDevice*> CudaBackend::peers_of(const CudaDevice& device) const {
  std::vector<const CudaDevice*> peers;
  for (const auto& opened : opened_) {
    const CudaDevice* const peer = opened.ready.load(std::memory_order_acquire);
    if (peer != nullptr && peer != &device && peer->can_copy_directly(device)) peers.push_back(peer);
  }
  return peers;
}

std::size_t CudaBackend::slab_granularity(int device) const {
  const CUmemAllocationProp properties = slab_properties(ordinal(device));
  std::size_t granularity = 0;
  check(driver().cuMemGetAllocationGranularity(&granularity, &properties, kGranularityMinimum),
        "cuMemGetAllocationGranularity", {.device = device, .what = "a slab"});
  return granularity;
}

std::unique_ptr<Slab> CudaBackend::create_slab(int device, std::size_t bytes) {
  require(bytes > 0, "cannot create a slab of 0 bytes");
  if (is_beyond(info(device), bytes)) throw cuda_error(kOutOfMemory, "cuMemCreate", {device, "a slab", bytes});
  const std::size_t granularity = slab_granularity(device);
  const auto rounded = (bytes + granularity - 1) / granularity * granularity;
  const TraceSpan span("cuda.create_slab", rounded);
  const CUmemAllocationProp properties = slab_properties(ordinal(device));
  CUmemHandle handle = 0;
  check(driver().cuMemCreate(&handle, rounded, &properties, 0), "cuMemCreate", {device, "a slab", rounded});
  return std::make_unique<CudaSlab>(counters_, device, handle, rounded);
}

std::unique_ptr<Slab> CudaBackend::import_slab(int device, const Fd& fd, std::size_t bytes) {
  const CUdevice number = ordinal(device);
  const std::size_t granularity = slab_granularity(device);
  const auto refuse = [&](const std::string& reason) {
    return Error(
        Errc::corrupt,
        fmt::format("file descriptor {} cannot be imported as a slab on cuda:{}: {}", fd.get(), device, reason),
        "pass the descriptor and the size() of a slab, on the device with the UUID its maker reported");
  };
  if (bytes == 0 || bytes % granularity != 0 || is_beyond(info(device), bytes))
    throw refuse(fmt::format("{} bytes cannot be the size of a slab", bytes));
  const TraceSpan span("cuda.import_slab", bytes);
  CUmemHandle handle = 0;
  // The API takes the descriptor as a pointer.
  void* const as_pointer =
      reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get()));  // NOLINT(performance-no-int-to-ptr)
  const CUresult result = driver().cuMemImportFromShareableHandle(&handle, as_pointer, kHandlePosixFd);
  if (result == kNotInitialized) fork_guard::fail();
  if (result != kSuccess) throw refuse(describe(result));
  auto slab = std::make_unique<CudaSlab>(counters_, device, handle, bytes);
  CUmemAllocationProp properties{};
  check(driver().cuMemGetAllocationPropertiesFromHandle(&properties, handle),
        "cuMemGetAllocationPropertiesFromHandle", {device, "an imported slab", bytes});
  if (properties.location.id != number) throw refuse("it is on another device");
  return slab;
}

}  // namespace drover::device::cuda
