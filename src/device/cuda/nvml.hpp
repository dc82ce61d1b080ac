// device/cuda/nvml.hpp: NVIDIA's management library, loaded at run time; shows GPUs without initialising CUDA.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/cuda/entry.hpp"
#include "device/gpu_processes.hpp"
#include "drover/device/info.hpp"

namespace drover::device::cuda {

using NvmlDevice = struct nvmlDevice_st*;

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_sub_system_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);

/// NVML's description of a process (nvmlProcessInfo_v2_t).
struct NvmlProcess {
  unsigned pid;
  unsigned long long bytes;  ///< all ones if unknown
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(NvmlProcess) == 24);

/// A GPU, or a MIG instance of one, as NVML lists it.
struct NvmlGpu {
  NvmlDevice handle = nullptr;
  DeviceInfo info;  ///< index not yet set
};

/// NVML's entry points and the result of its initialisation.
struct Nvml {
#define DROVER_NVML(name, need, parameters) Entry<int parameters> name{#name, AfterFork::allowed};
#include "device/cuda/nvml.def"
#undef DROVER_NVML

  std::string error;                  ///< why it could not be loaded; empty if it was
  std::optional<ForeignResult> init;  ///< result of nvmlInit; nullopt if NVML could not be loaded

  [[nodiscard]] bool is_usable() const noexcept { return init && init->code == 0; }
  /// e.g. "580.159.04"; empty if unknown.
  [[nodiscard]] std::string driver_version() const;
  /// Every GPU in PCI order; a partitioned GPU is replaced by its MIG instances. Requires: is_usable().
  [[nodiscard]] std::vector<NvmlGpu> gpus() const;
  /// Memory of a GPU over all processes. Throws `Errc::unsupported`, `Errc::permission_denied` or
  /// `Errc::device_lost` if NVML does not report it.
  [[nodiscard]] MemoryInfo memory_info(const NvmlGpu& gpu) const;
  /// The processes with a context on the GPU of this UUID; empty if NVML does not report them.
  [[nodiscard]] std::vector<GpuProcess> processes_on(const std::string& uuid) const;
};

/// Loads libnvidia-ml.so.1, or the library that DROVER_LIBNVML names, and initialises it, once per process.
[[nodiscard]] const Nvml& nvml();

}  // namespace drover::device::cuda
