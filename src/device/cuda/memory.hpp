// device/cuda/memory.hpp: memory of the GPUs.
#pragma once

#include <span>

#include "device/cuda/api_types.hpp"
#include "device/live.hpp"
#include "drover/device/memory.hpp"

namespace drover::device::cuda {

class CudaDevice;

/// Physical memory from cuMemCreate; needs no context.
class CudaSlab final : public Slab {
 public:
  CudaSlab(LiveCounters& live, int device, CUmemHandle handle, std::size_t bytes) noexcept
      : Slab(device, bytes), live_(live.slabs), handle_(handle) {}
  ~CudaSlab() override;

  [[nodiscard]] Fd export_fd() const override;
  [[nodiscard]] CUmemHandle handle() const noexcept { return handle_; }

 private:
  LiveToken live_;
  CUmemHandle handle_;
};

/// Memory from cuMemAlloc.
class CudaAllocation final : public DeviceMemory {
 public:
  CudaAllocation(CudaDevice& device, std::size_t bytes);
  ~CudaAllocation() override;

 private:
  CudaDevice& device_;
  LiveToken live_;
};

/// A slab mapped at an address of this process.
class CudaSlabMapping final : public DeviceMemory {
 public:
  CudaSlabMapping(CudaDevice& device, const CudaSlab& slab);
  ~CudaSlabMapping() override;

 private:
  CudaDevice& device_;
  LiveToken live_;
};

/// Host memory pinned for the GPUs of this process.
class CudaHostRegistration final : public HostRegistration {
 public:
  CudaHostRegistration(CudaDevice& device, std::span<std::byte> memory);
  ~CudaHostRegistration() override;

 private:
  CudaDevice& device_;
  LiveToken live_;
  void* begin_;
};

}  // namespace drover::device::cuda
