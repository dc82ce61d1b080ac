#include "device/cuda/nvml.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "base/config.hpp"
#include "device/shared_library.hpp"
#include "drover/base/error.hpp"

namespace drover::device::cuda {
namespace {

using ErrorString = const char* (*)(int);
constexpr std::size_t kTextBytes = 96;
using Text = std::array<char, kTextBytes>;

ForeignResult initialize(const Nvml& library, ErrorString error_string) {
  const int code = library.nvmlInit_v2();
  return {code, error_string == nullptr ? fmt::format("NVML error {}", code) : error_string(code)};
}

Nvml* load_nvml() {
  auto* const loaded = new Nvml;
  const auto path = environment_path("DROVER_LIBNVML").value_or("libnvidia-ml.so.1");
  static auto* const library = new SharedLibrary(SharedLibrary::open(path, loaded->error));
  if (!library->is_open()) return loaded;
#define DROVER_NVML(name, need, parameters)                                                           \
  loaded->name.set(library->symbol(#name));                                                           \
  if (!loaded->name.is_present() && std::string_view(#need) == "required" && loaded->error.empty()) { \
    loaded->error = path + " lacks " #name;                                                           \
  }
#include "device/cuda/nvml.def"
#undef DROVER_NVML
  if (!loaded->error.empty()) return loaded;
  loaded->init = initialize(*loaded, reinterpret_cast<ErrorString>(library->symbol("nvmlErrorString")));
  return loaded;
}

// NVML writes "00000000:1B:00.0", the kernel "0000:1b:00.0".
std::string kernel_bus_id(std::string_view nvml_bus_id) {
  std::string text(nvml_bus_id);
  if (text.size() > 12) text.erase(0, text.size() - 12);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::optional<int> numa_node(const std::string& pci) {
  int node = -1;
  std::ifstream("/sys/bus/pci/devices/" + pci + "/numa_node") >> node;
  return node < 0 ? std::nullopt : std::optional(node);
}

ComputeMode compute_mode(const Nvml& library, NvmlDevice handle) {
  int mode = -1;
  if (!library.nvmlDeviceGetComputeMode.is_present() || library.nvmlDeviceGetComputeMode(handle, &mode) != 0) {
    return ComputeMode::unknown;
  }
  switch (mode) {
    case 0: return ComputeMode::shared;
    case 2: return ComputeMode::prohibited;
    case 1:
    case 3: return ComputeMode::exclusive_process;
    default: return ComputeMode::unknown;
  }
}

std::optional<bool> mig_enabled(const Nvml& library, NvmlDevice handle) {
  unsigned current = 0;
  unsigned pending = 0;
  if (!library.nvmlDeviceGetMigMode.is_present()) return std::nullopt;
  if (library.nvmlDeviceGetMigMode(handle, &current, &pending) != 0) return std::nullopt;
  return current == 1;
}

// Whether an MPS control daemon is alive at the pipe directory that this process would use.
bool mps_is_running() {
  const auto folder = environment_path("CUDA_MPS_PIPE_DIRECTORY").value_or("/tmp/nvidia-mps");
  pid_t daemon = 0;
  std::ifstream(folder + "/nvidia-cuda-mps-control.pid") >> daemon;
  return daemon > 0 && (::kill(daemon, 0) == 0 || errno == EPERM);
}

std::optional<NvmlGpu> describe_gpu(const Nvml& library, NvmlDevice handle) {
  NvmlGpu gpu{.handle = handle, .info = {}};
  gpu.info.backend = BackendKind::cuda;
  Text text{};
  if (library.nvmlDeviceGetUUID(handle, text.data(), kTextBytes) != 0) return std::nullopt;
  const auto uuid = parse_uuid(text.data());
  if (!uuid) return std::nullopt;
  gpu.info.uuid = *uuid;
  text = {};
  if (library.nvmlDeviceGetName(handle, text.data(), kTextBytes) == 0) gpu.info.name = text.data();
  NvmlMemory memory{};
  if (library.nvmlDeviceGetMemoryInfo(handle, &memory) == 0) gpu.info.memory_total = memory.total;
  NvmlPciInfo pci{};
  if (library.nvmlDeviceGetPciInfo_v3(handle, &pci) == 0) gpu.info.pci = kernel_bus_id(pci.bus_id);
  gpu.info.numa_node = numa_node(gpu.info.pci);
  gpu.info.compute_mode = compute_mode(library, handle);
  gpu.info.mig_enabled = mig_enabled(library, handle);
  gpu.info.mps_running = mps_is_running();
  return gpu;
}

// The instances of a partitioned GPU, which share its location and compute mode.
void add_instances(const Nvml& library, const NvmlGpu& gpu, std::vector<NvmlGpu>& into) {
  unsigned count = 0;
  if (!library.nvmlDeviceGetMaxMigDeviceCount.is_present() ||
      !library.nvmlDeviceGetMigDeviceHandleByIndex.is_present() ||
      library.nvmlDeviceGetMaxMigDeviceCount(gpu.handle, &count) != 0) {
    return;
  }
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice handle = nullptr;
    if (library.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, index, &handle) != 0) continue;
    auto instance = describe_gpu(library, handle);
    if (!instance) continue;
    instance->info.is_mig_instance = true;
    instance->info.mig_enabled = true;
    instance->info.pci = gpu.info.pci;
    instance->info.numa_node = gpu.info.numa_node;
    instance->info.compute_mode = gpu.info.compute_mode;
    into.push_back(std::move(*instance));
  }
}

Errc reason_of(int code) {
  switch (code) {
    case 3: return Errc::unsupported;        // NVML_ERROR_NOT_SUPPORTED
    case 4: return Errc::permission_denied;  // NVML_ERROR_NO_PERMISSION
    default: return Errc::device_lost;
  }
}

constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE; sets the required count
constexpr unsigned kRoomToSpare = 8;
constexpr int kTries = 4;

std::vector<NvmlProcess> list_processes(const Nvml& library, NvmlDevice device) {
  std::vector<NvmlProcess> found(kRoomToSpare);
  for (int attempt = 0; attempt < kTries; ++attempt) {  // processes may start between two calls
    auto count = static_cast<unsigned>(found.size());
    const int code = library.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, found.data());
    if (code == kTooSmall) {
      found.resize(count + kRoomToSpare);
      continue;
    }
    found.resize(code == 0 ? count : 0);
    return found;
  }
  return {};
}

}  // namespace

std::string Nvml::driver_version() const {
  Text text{};
  if (!is_usable() || nvmlSystemGetDriverVersion(text.data(), kTextBytes) != 0) return {};
  return text.data();
}

std::vector<NvmlGpu> Nvml::gpus() const {
  std::vector<NvmlGpu> found;
  unsigned count = 0;
  if (nvmlDeviceGetCount_v2(&count) != 0) return found;
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice handle = nullptr;
    if (nvmlDeviceGetHandleByIndex_v2(index, &handle) != 0) continue;
    const auto gpu = describe_gpu(*this, handle);
    if (!gpu) continue;
    const auto before = found.size();
    if (gpu->info.mig_enabled.value_or(false)) add_instances(*this, *gpu, found);
    if (found.size() == before) found.push_back(*gpu);
  }
  return found;
}

MemoryInfo Nvml::memory_info(const NvmlGpu& gpu) const {
  NvmlMemory memory{};
  const int code = nvmlDeviceGetMemoryInfo(gpu.handle, &memory);
  if (code != 0) {
    throw Error(reason_of(code),
                fmt::format("NVML does not report the memory of {} (code {})", device_id(gpu.info), code),
                "run `drover doctor` and look at `dmesg`");
  }
  return {.total = memory.total, .free = memory.free};
}

std::vector<GpuProcess> Nvml::processes_on(const std::string& uuid) const {
  if (!nvmlDeviceGetHandleByUUID.is_present() || !nvmlDeviceGetComputeRunningProcesses_v3.is_present()) return {};
  NvmlDevice device = nullptr;
  if (nvmlDeviceGetHandleByUUID(uuid.c_str(), &device) != 0) return {};
  std::vector<GpuProcess> processes;
  for (const auto& process : list_processes(*this, device)) {
    const bool is_known = process.bytes != std::numeric_limits<unsigned long long>::max();
    processes.push_back({.pid = static_cast<pid_t>(process.pid), .bytes = is_known ? process.bytes : 0});
  }
  return processes;
}

const Nvml& nvml() {
  static const Nvml* const loaded = load_nvml();  // never destroyed, like driver()
  return *loaded;
}

}  // namespace drover::device::cuda
