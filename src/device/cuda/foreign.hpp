// device/cuda/foreign.hpp: GPU memory that others allocated.
#pragma once

#include "device/cuda/api_types.hpp"
#include "device/live.hpp"
#include "drover/device/foreign.hpp"

namespace drover::cuda {

class CudaDevice;

/// What the driver knows of an address.
[[nodiscard]] PointerInfo describe_pointer(const CudaDevice& device, DevicePtr ptr);

/// An allocation of another process, opened by its handle.
class CudaIpcMemory final : public DeviceMemory {
 public:
  CudaIpcMemory(CudaDevice& device, const IpcHandle& handle, std::size_t bytes);
  ~CudaIpcMemory() override;

 private:
  CudaDevice& device_;
  LiveToken live_;
};

/// The physical memory behind `ptr`, for `describe_pointer` and for slabs; 0 if there is none of that kind. To be
/// released.
[[nodiscard]] CUmemHandle retain_handle(DevicePtr ptr);

}  // namespace drover::cuda
