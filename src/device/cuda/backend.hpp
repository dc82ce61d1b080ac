// device/cuda/backend.hpp: NVIDIA GPUs through the driver API.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/driver.hpp"
#include "device/cuda/nvml.hpp"
#include "device/live.hpp"
#include "drover/device/backend.hpp"

namespace drover::device::cuda {

class CudaDevice;

/// The GPUs that NVML lists and CUDA_VISIBLE_DEVICES leaves visible. CUDA itself is initialised by the first call
/// that needs it: open, slab_granularity, create_slab or import_slab.
class CudaBackend final : public Backend {
 public:
  /// Loads the driver and lists the GPUs. Throws `Errc::driver_missing`, `Errc::driver_mismatch`, or
  /// `Errc::not_found` if no GPU is visible.
  CudaBackend();
  ~CudaBackend() override;

  [[nodiscard]] BackendKind kind() const noexcept override { return BackendKind::cuda; }
  [[nodiscard]] const std::vector<DeviceInfo>& devices() const override { return infos_; }
  [[nodiscard]] MemoryInfo memory_info(int device) const override;
  [[nodiscard]] Device& open(int device) override;
  [[nodiscard]] std::size_t slab_granularity(int device) const override;
  [[nodiscard]] std::unique_ptr<Slab> create_slab(int device, std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Slab> import_slab(int device, const Fd& fd, std::size_t bytes) override;
  [[nodiscard]] LiveResources live() const noexcept override { return counters_.read(); }

  // For its devices.
  [[nodiscard]] LiveCounters& counters() noexcept { return counters_; }
  /// Our index of the device with this CUDA ordinal; -1 if it is not visible.
  [[nodiscard]] int index_of(CUdevice ordinal) const;
  /// The other open devices of this process that can access memory of `device` directly.
  [[nodiscard]] std::vector<const CudaDevice*> peers_of(const CudaDevice& device) const;

 private:
  [[nodiscard]] const DeviceInfo& info(int device) const;
  /// The CUDA ordinal of a device. Initialises CUDA at the first call.
  [[nodiscard]] CUdevice ordinal(int device) const;
  void initialize() const;

  std::vector<NvmlGpu> gpus_;
  std::vector<DeviceInfo> infos_;
  mutable std::once_flag initialized_;
  mutable std::vector<CUdevice> ordinals_;  // written once, by initialize
  LiveCounters counters_;
  struct OpenedDevice {
    std::once_flag once;  // one per device, so that a faulty GPU does not block the others
    std::unique_ptr<CudaDevice> device;
    std::atomic<const CudaDevice*> ready = nullptr;  // the same, for readers that do not wait for `once`
  };
  std::vector<OpenedDevice> opened_;
};

/// The properties of every slab: pinned on the device, exportable as a file descriptor.
[[nodiscard]] CUmemAllocationProp slab_properties(CUdevice ordinal);

}  // namespace drover::device::cuda
